"""Measured training: throughput relative to a baseline, efficiencies, and times to train.

The baseline's throughput gives the compute time of one GPU, after removal of the losses that the
model predicts for the baseline itself; the point is then predicted from that.
"""

import re
from functools import lru_cache

import numpy as np

from simulator.hardware.constants import Constants
from simulator.hardware.gpus import find_gpu
from simulator.hardware.names import UnknownHardware
from simulator.training.exchange import HOROVOD_CYCLE_S, plan
from simulator.training.input_pipeline import hand_over_s, input_rates
from simulator.training.models import Model, find_model, samples_per_s
from simulator.training.placement import Place
from simulator.training.plans import Gradients, Plan, Scheme, Software
from simulator.training.products import dense_s
from simulator.training.step import compute_from, step, straggling
from simulator.validation.points import BadPoint, Point, place_of
from simulator.validation.prediction import Prediction

# The batch where none is stated.
USUAL_BATCH = 32
# The number of equal layers of a network that is not in the catalogue.
UNKNOWN_LAYERS = 20
# Large products of single precision reach this share of the peak: 7,500 frames per second of the
# network with 46 million parameters on a K20X, which is the baseline of Seide et al.
DENSE_SHARE = 7500 * 6 * 46e6 / 3.94e12
# 1-bit SGD computes one half of a batch while the gradient of the other is in flight (Seide et
# al.).
HALVES = 2
# AdaGrad reads gradient, parameter and sum of squares, and writes the last two, in single
# precision.
UPDATE_BYTES = 20.0
IMAGENET = 1_281_167
# Epochs to the target accuracy at small batches, and how they grow with the global batch; MLPerf's
# reference convergence points for ResNet-50.
EPOCHS = ((4096, 37.0), (16384, 40.0), (32768, 47.0), (65536, 58.0), (131072, 80.0))


def throughput(point: Point, baseline: Point, constants: Constants) -> Prediction:
    """Predict the throughput of a point from that of its baseline."""
    measured = point.number("throughput")
    if baseline.text("unit", "") != point.text("unit", ""):
        raise BadPoint("its unit is not that of its baseline")
    if point.text("unit", "") == "speedup":
        return _speedup(point, constants)
    batch = _samples(point, baseline)
    accumulated = point.count("accum", 1)
    lone = _rate(baseline) / (
        1 if baseline.fields.get("per_gpu_rate") else baseline.count("n_gpus")
    )
    compute = _compute_s(baseline, lone, constants) * batch / _samples(baseline)
    place = place_of(point)
    taken = step(
        compute,
        _plan(point, place, constants),
        straggling(place.ranks, place.nodes, accumulated),
        micro_batches=accumulated,
        input_s=_input_s(point, baseline, place, batch, accumulated),
        hand_s=_hand_s(point, place, batch * accumulated),
    ).total_s
    each = batch * accumulated / taken
    whole = each if point.fields.get("per_gpu_rate") else each * place.ranks
    predicted = whole / _to_samples(point)
    ideal = lone if point.fields.get("per_gpu_rate") else lone * place.ranks
    return Prediction(
        measured, predicted, point.text("unit", ""), measured * _to_samples(point) / ideal
    )


def _rate(point: Point) -> float:
    """Return samples per second."""
    rate = point.number("throughput") * _to_samples(point)
    if rate <= 0:
        raise BadPoint("throughput must be above 0")
    return rate


def _to_samples(point: Point) -> float:
    return {"1e4/min": 1e4 / 60.0}.get(point.text("unit", ""), 1.0)


def _samples(point: Point, baseline: Point | None = None) -> float:
    """Return the samples of one micro-batch of one GPU, in the unit of the throughput.

    The baseline's batch applies if the point states none. Raise BadPoint if it is not above 0.
    """
    usual = USUAL_BATCH if baseline is None else baseline.number("batch", USUAL_BATCH)
    batch = point.number("batch", usual)
    if batch <= 0:
        raise BadPoint("batch must be above 0")
    if point.text("unit", "").startswith("tokens"):
        batch *= point.number("seq", 2048)
    return batch


def _compute_s(baseline: Point, lone_rate: float, constants: Constants) -> float:
    place = place_of(baseline)
    accumulated = baseline.count("accum", 1)
    return compute_from(
        _samples(baseline) * accumulated / lone_rate,
        _plan(baseline, place, constants),
        straggling(place.ranks, place.nodes, accumulated),
        micro_batches=accumulated,
        hand_s=_hand_s(baseline, place, _samples(baseline) * accumulated),
    )


def _hand_s(point: Point, place: Place, samples: float) -> float:
    """Return the seconds that GPUs wait until samples are copied to them.

    TensorFlow of 2017 fed all GPUs of a node from one process, and MXNet does, from memory that is
    not pinned and for real and synthetic samples alike. DALI prefetches to the device.
    """
    framework, data = point.text("framework", "").lower(), point.text("data", "").lower()
    mxnet = "mxnet" in framework
    if "dali" in data or not (mxnet or data == "real"):
        return 0.0
    try:
        model = find_model(point.text("model", ""))
    except UnknownHardware:
        return 0.0
    fed = 1 if "horovod" in framework else place.per_node
    return hand_over_s(model, samples * fed, pinned=not mxnet)


def _plan(point: Point, place: Place, constants: Constants) -> Plan:
    each = point.size("grad_bytes", 4.0)
    return plan(
        place,
        _gradients(point.text("model", ""), point.size("params"), each),
        _scheme(point),
        constants,
        _software(point),
        point.size("max_tensor_params") * each,
    )


@lru_cache(maxsize=1024)
def _gradients(model: str, params: float, each: float) -> Gradients:
    """Return the gradients by layer for a model of the catalogue; evenly spread for any other."""
    try:
        known = find_model(model)
    except UnknownHardware:
        if params <= 0:
            raise BadPoint(f"no model {model!r} in the catalogue, and params is missing") from None
        return ((params * each / UNKNOWN_LAYERS, 1.0 / UNKNOWN_LAYERS),) * UNKNOWN_LAYERS
    size = (params or known.params) * each
    work = sum(layer.macs for layer in known.layers)
    return tuple(
        (layer.params / known.params * size, layer.macs / work) for layer in reversed(known.layers)
    )


def _scheme(point: Point) -> Scheme:
    name = point.text("comm", "ring")
    for scheme in Scheme:
        if name == scheme.value:
            return scheme
    if re.search(r"nccl|all.?reduce|horovod|ddp|gloo", name.lower()):
        return Scheme.ALL_REDUCE
    raise BadPoint(f"comm is {name!r}; known are {', '.join(Scheme)}")


def _software(point: Point) -> Software:
    framework = point.text("framework", "").lower()
    # tf_cnn_benchmarks of 2017 reduced with NCCL 1, after the backward pass.
    early = framework.startswith("tf_cnn_benchmarks") and point.text("comm", "") == "ring"
    return Software(
        overlap=point.fields.get("overlap") is not False and not early,
        cycle_s=HOROVOD_CYCLE_S if "horovod" in framework else 0.0,
        single_ring=early,
        servers=point.count("n_ps") if point.fields.get("n_ps") else None,
    )


def _input_s(point: Point, baseline: Point, place: Place, batch: float, accumulated: int) -> float:
    """Return the seconds in which hosts prepare the samples of one step; 0 for synthetic samples.

    A host prepares at least what the baseline was observed to use. MXNet's benchmark decodes images
    even where the file calls its data synthetic.
    """
    decodes = point.text("data", "") == "real" or "kvstore" in point.text("framework", "").lower()
    if not decodes:
        return 0.0
    try:
        model = find_model(point.text("model", ""))
    except UnknownHardware:
        return 0.0
    seen = _rate(baseline) / baseline.count("n_nodes", 1) if baseline.count("n_gpus") > 1 else 0.0
    node = max(input_rates(model, place.host, place.per_node, cached=1.0).prepare, seen)
    return batch * accumulated * place.per_node / node


def _speedup(point: Point, constants: Constants) -> Prediction:
    """Predict strong scaling: the batch is divided by the number of GPUs."""
    place, params = place_of(point), point.number("params")
    if params <= 0:
        raise BadPoint("params must be above 0")
    rows = point.number("batch", 2880)
    if rows <= 0:
        raise BadPoint("batch must be above 0")
    parts = HALVES if _scheme(point) is Scheme.ONE_BIT else 1
    flops = DENSE_SHARE * place.gpu.peak_tflops("fp32") * 1e12
    update = UPDATE_BYTES * params / (place.gpu.memory_gbs * 1e9)

    def computed_s(part: float) -> float:
        return dense_s(params, part, UNKNOWN_LAYERS, place.gpu.sms, flops)

    taken = step(
        computed_s(rows / place.ranks / parts),
        _plan(point, place, constants),
        straggling(place.ranks, place.nodes),
    ).total_s
    alone = computed_s(rows) + update
    measured = point.number("throughput")
    return Prediction(
        measured, alone / (parts * (taken + update)), "speedup", measured / place.ranks
    )


def efficiency(point: Point, constants: Constants) -> Prediction:
    """Predict an efficiency without a baseline: the catalogue gives the speed of one GPU."""
    place = place_of(point)
    model = _known(point)
    batch = int(point.number("batch", model.batch))
    compute = batch / samples_per_s(model, place.gpu, point.precision("fp32"), batch)
    taken = step(
        compute,
        _plan(point, place, constants),
        straggling(place.ranks, place.nodes),
    ).total_s
    measured = point.number("efficiency")
    return Prediction(measured, compute / taken, "efficiency", measured)


def _known(point: Point) -> Model:
    try:
        return find_model(point.text("model"))
    except UnknownHardware as unknown:
        raise BadPoint(str(unknown)) from None


def type_ratio(point: Point) -> Prediction:
    """Predict how much faster one GPU is than one of another type, by the catalogue alone."""
    model, batch = _known(point), int(point.number("batch"))
    precision = point.precision("fp32")
    try:
        fast, slow = (find_gpu(point.text(name)) for name in ("gpu", "than"))
    except UnknownHardware as unknown:
        raise BadPoint(str(unknown)) from None
    rates = [samples_per_s(model, gpu, precision, batch) for gpu in (fast, slow)]
    return Prediction(point.number("ratio"), rates[0] / rates[1], "x")


def time_to_train(point: Point, constants: Constants) -> Prediction:
    """Predict the minutes to train ResNet-50 on ImageNet to the target accuracy."""
    place = place_of(point)
    model = _known(point)
    # The largest batches that converge well are about 64k; below that, GPUs are filled.
    batch = max(1, min(408, 65536 // place.ranks))
    compute = batch / samples_per_s(model, place.gpu, point.precision("fp16"), batch)
    taken = step(
        compute,
        _plan(point, place, constants),
        straggling(place.ranks, place.nodes),
    ).total_s
    sizes, epochs = zip(*EPOCHS, strict=True)
    needed = float(np.interp(batch * place.ranks, sizes, epochs))
    minutes = needed * IMAGENET / (batch * place.ranks) * taken / 60.0
    return Prediction(point.number("minutes"), minutes, "minutes")
