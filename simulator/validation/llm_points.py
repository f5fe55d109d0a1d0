"""Measured iterations of large language models, and published utilisations (MFU)."""

from simulator.hardware.constants import Constants
from simulator.training.llm import Llm, Parallel, iteration
from simulator.validation.points import BadPoint, Point, place_of
from simulator.validation.prediction import Prediction


def iteration_ms(point: Point, constants: Constants) -> Prediction:
    """Predict the time of one iteration in milliseconds."""
    place = place_of(point)
    llm = Llm(
        hidden=point.count("hidden"),
        layers=point.count("layers"),
        heads=point.count("heads", max(1, point.count("hidden") // 128)),
        sequence=point.count("seq", 2048),
    )
    how = Parallel(
        tensor=point.count("tp", 1),
        pipeline=point.count("pp", 1),
        data=point.count("dp", 1),
        micro_batch=point.count("batch", 1),
        global_batch=point.count("global_batch"),
        precision=point.precision("fp16"),
        recompute="checkpoint" in point.text("comm", "") or "recompute" in point.text("comm", ""),
    )
    if how.micro_batches < 1:
        raise BadPoint("global_batch is less than one micro-batch for each replica")
    taken = iteration(llm, how, place, constants).total_s
    return Prediction(point.number("iter_ms"), taken * 1e3, "ms")


# Shapes of published runs that state only their size: hidden, layers, heads.
_SHAPES = {
    1.7: (2304, 24, 24),
    3.6: (3072, 30, 32),
    7.5: (4096, 36, 32),
    18.4: (6144, 40, 48),
    39.1: (8192, 48, 64),
    76.1: (10240, 60, 80),
    145.6: (12288, 80, 96),
    310.1: (16384, 96, 128),
    405.0: (16384, 126, 128),
    529.6: (20480, 105, 128),
    1008.0: (25600, 128, 160),
}


def utilisation(point: Point, constants: Constants) -> Prediction:
    """Predict sustained floating-point operations over the peak, counted as the source counts them."""
    place = place_of(point)
    shaped = {"hidden", "layers"} <= point.fields.keys()
    billions = point.number("params", 0.0 if shaped else None) / 1e9
    near = min(_SHAPES, key=lambda size: abs(size - billions))
    hidden, layers, heads = _SHAPES[near]
    mp = point.count("mp", 1)
    tensor = point.count("tp", min(mp, place.per_node))
    pipeline = point.count("pp", max(1, mp // tensor))
    data = point.count("dp", max(1, place.ranks // (tensor * pipeline)))
    early = "hardware FLOPs" in point.text("notes", "")
    llm = Llm(
        hidden=point.count("hidden", hidden),
        layers=point.count("layers", layers),
        heads=max(1, point.count("hidden", hidden) // 128) if "hidden" in point.fields else heads,
        sequence=point.count("seq", 2048 if early else 4096),
    )
    how = Parallel(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=1,
        global_batch=max(point.count("global_batch", data * pipeline * 4), data),
        precision=point.precision("bf16"),
        recompute=early,
        flash=not early,
        interleave=2 if pipeline > 1 else 1,
    )
    taken = iteration(llm, how, place, constants)
    flops = taken.model_flops * (4.0 / 3.0 if early else 1.0)
    peak = place.gpu.peak_tflops(how.precision) * 1e12 * tensor * pipeline * data
    return Prediction(point.number("mfu"), flops / taken.total_s / peak, "MFU")
