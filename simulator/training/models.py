"""The catalogue of models: layers, sample sizes, and measured rates of single GPUs.

A profile is all that the formulas need to know about a model. Rates of single GPUs are published
measurements (samples per second at the batch size that is given with them); a GPU without one gets
the rate of the nearest measured GPU, scaled by peak rate and memory bandwidth.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import log

from simulator.hardware.gpus import Gpu, find_gpu
from simulator.hardware.names import UnknownHardware, words
from simulator.training.layers import (
    Layers,
    alexnet,
    googlenet,
    inception_v3,
    lenet5,
    lstm,
    resnet,
    transformer,
    vgg16,
)

# (GPU, precision) -> (batch per GPU, samples per second).
Rates = Mapping[tuple[str, str], tuple[int, float]]


# One object per model: compared and cached by identity.
@dataclass(frozen=True, eq=False)
class Model:
    """A model of the catalogue."""

    name: str
    layers: Layers
    # Bytes of one sample in storage, and as it is copied to the device.
    sample_bytes: float = 0.0
    device_bytes: float = 0.0
    # Samples that one hardware thread prepares per second; infinite where there is no work.
    prepared_per_cpu_s: float = float("inf")
    unit: str = "samples"
    batch: int = 32
    rates: Rates = field(default_factory=dict)
    hidden: int = 0
    depth: int = 0
    sequence: int = 0
    vocabulary: int = 0

    @cached_property
    def params(self) -> int:
        return sum(layer.params for layer in self.layers)

    @cached_property
    def params_max(self) -> int:
        """The size of the largest tensor, which a parameter server without splitting keeps whole."""
        return max(layer.params for layer in self.layers)

    @cached_property
    def flops(self) -> float:
        """Floating-point operations of forward and backward pass for one sample."""
        return 6.0 * sum(layer.macs for layer in self.layers)


# ImageNet JPEGs are 110 to 115 kB. tf.data decodes, crops and resizes 11,000 of them per second
# with the 80 threads of a DGX-1 (github.com/tensorpack/benchmarks, ImageNet/README.md).
def _image(name: str, layers: Layers, batch: int, rates: Rates, side: int = 224) -> Model:
    """Return a model of ImageNet for pictures of `side` x `side` pixels with three floats each."""
    return Model(
        name,
        layers,
        sample_bytes=112e3,
        device_bytes=side * side * 3 * 4.0,
        prepared_per_cpu_s=11_000 / 80,
        unit="images",
        batch=batch,
        rates=rates,
    )


def gpt(
    name: str, hidden: int, depth: int, *, sequence: int = 2048, vocabulary: int = 51200
) -> Model:
    """Return a GPT model; a sample is one sequence."""
    return Model(
        name,
        transformer(hidden, depth, vocabulary, sequence),
        sample_bytes=2.0 * sequence,
        device_bytes=4.0 * sequence,
        unit="sequences",
        batch=1,
        hidden=hidden,
        depth=depth,
        sequence=sequence,
        vocabulary=vocabulary,
    )


_RESNET50: Rates = {
    ("K80", "fp32"): (64, 52.0),
    ("M60", "fp32"): (32, 68.0),
    ("M40", "fp32"): (64, 111.0),
    ("P100", "fp32"): (64, 219.0),
    ("V100", "fp32"): (128, 390.0),
    ("V100", "fp16"): (256, 1270.0),
    ("A100", "tf32"): (256, 938.0),
    ("A100", "fp16"): (256, 2470.0),
}
_BERT: Rates = {
    ("V100", "fp16"): (60, 224.0),
    ("A100", "fp16"): (256, 580.0),
    ("A100", "tf32"): (128, 317.0),
}

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        _image("resnet50", resnet(3, 4, 6, 3), 64, _RESNET50),
        _image(
            "resnet101",
            resnet(3, 4, 23, 3),
            64,
            {("P100", "fp32"): (64, 127.0), ("V100", "fp32"): (64, 203.0)},
        ),
        _image(
            "resnet152",
            resnet(3, 8, 36, 3),
            32,
            {("K80", "fp32"): (32, 20.0), ("P100", "fp32"): (64, 91.8)},
        ),
        _image(
            "inception_v3",
            inception_v3(),
            64,
            {
                ("K80", "fp32"): (64, 30.5),
                ("M60", "fp32"): (32, 50.0),
                ("P100", "fp32"): (64, 142.0),
                ("V100", "fp32"): (64, 254.0),
            },
            side=299,
        ),
        _image(
            "vgg16",
            vgg16(),
            64,
            {("K80", "fp32"): (32, 35.4), ("P100", "fp32"): (64, 154.0)},
        ),
        _image(
            "alexnet",
            alexnet(),
            512,
            {("K80", "fp32"): (512, 656.0), ("P100", "fp32"): (512, 2987.0)},
        ),
        _image("googlenet", googlenet(), 128, {("P100-PCIe", "fp32"): (128, 220.0)}),
        Model(
            "lenet5",
            lenet5(),
            sample_bytes=784.0,
            device_bytes=4 * 784.0,
            prepared_per_cpu_s=50e3,
            unit="images",
            batch=64,
        ),
        Model(
            "ptb_lstm",
            lstm(1500, 2, 10_000, 35),
            sample_bytes=140.0,
            device_bytes=280.0,
            unit="sequences",
            batch=20,
        ),
        Model(
            "bert_large",
            transformer(1024, 24, 30522, 128),
            sample_bytes=1024.0,
            device_bytes=4096.0,
            unit="sequences",
            batch=64,
            rates=_BERT,
            hidden=1024,
            depth=24,
            sequence=128,
            vocabulary=30522,
        ),
        gpt("gpt2_medium", 1024, 24, sequence=1024),
        gpt("gpt_1.7b", 2304, 24),
        gpt("gpt_3.6b", 3072, 30),
        gpt("gpt_7.5b", 4096, 36),
        gpt("gpt_18.4b", 6144, 40),
        gpt("gpt_39.1b", 8192, 48),
        gpt("gpt_76.1b", 10240, 60),
        gpt("gpt_145.6b", 12288, 80),
        gpt("gpt_175b", 12288, 96),
        gpt("gpt_310b", 16384, 96),
        gpt("gpt_529.6b", 20480, 105),
        gpt("gpt_1008b", 25600, 128),
    )
}
_ALIASES = {
    "resnet": "resnet50",
    "resnet 50": "resnet50",
    "resnet50 v1.5": "resnet50",
    "resnet50v1.5": "resnet50",
    "inception": "inception_v3",
    "inceptionv3": "inception_v3",
    "inception3": "inception_v3",
    "vgg": "vgg16",
    "lenet": "lenet5",
    "lstm": "ptb_lstm",
    "ptb": "ptb_lstm",
    "bert": "bert_large",
    "gpt3": "gpt_175b",
    "gpt 3": "gpt_175b",
}


@lru_cache(maxsize=512)
def find_model(name: str) -> Model:
    """Return the model of a name such as `ResNet-50`, `inception_v3` or `gpt_175.0B`.

    Raise UnknownHardware if the catalogue does not have it.
    """
    text = words(name)
    wanted = _ALIASES.get(text, text)
    plain = re.sub(r"(\d)\.0b$", r"\1b", re.sub(r"[ _-]", "", wanted))
    for model in MODELS.values():
        if plain == re.sub(r"[ _-]", "", model.name):
            return model
    raise UnknownHardware("model", name, list(MODELS))


@lru_cache(maxsize=512)
def samples_per_s(model: Model, gpu: Gpu, precision: str, batch: int) -> float:
    """Return the samples per second of one GPU alone: measured, or scaled from a measurement.

    The work of a step is partly arithmetic and partly memory traffic; a GPU without a measurement
    gets the geometric mean of both ratios to the measured one that is nearest in peak rate. Smaller
    batches lose the launch cost of a step: a tenth of the step at a quarter of the batch.
    """
    measured = [
        (find_gpu(name), used, size, rate) for (name, used), (size, rate) in model.rates.items()
    ]
    peak = gpu.peak_tflops(precision)
    if not measured:
        # A third of the peak is what convolutions and small matrix products reach.
        return peak * 1e12 * 0.33 / model.flops
    near, used, size, rate = min(
        measured,
        key=lambda row: (
            row[0].name.split("-")[0] != gpu.name.split("-")[0] or row[1] != precision,
            abs(log(row[0].peak_tflops(row[1]) / peak)),
        ),
    )
    by_peak = peak / near.peak_tflops(used)
    by_memory = gpu.memory_gbs / near.memory_gbs
    same = near.name.split("-")[0] == gpu.name.split("-")[0] and used == precision
    scaled = rate if same else rate * (by_peak * by_memory) ** 0.5
    launch = 0.035 * size / rate * (rate / scaled)
    step = batch * (1.0 / scaled - launch / size) + launch
    return batch / step
