"""Networks as lists of layers, built from their published architectures.

A layer here is a tensor of weights with the work of its forward pass for one sample. The order is
that of the forward pass. Gradients come in the opposite order, and the earlier the large ones come,
the more of their exchange overlaps with the rest of the backward pass. Biases and normalisation are
counted with the layer that they follow: their bytes are few and travel with it.
"""

from typing import NamedTuple


class Layer(NamedTuple):
    """One tensor of weights and the work of its forward pass."""

    params: int
    # Multiply-adds of the forward pass for one sample.
    macs: float
    # Outputs of its forward pass for one sample, where they are counted by layer.
    outputs: float = 0.0


Layers = tuple[Layer, ...]


def _conv(inputs: int, outputs: int, kernel: int | tuple[int, int], size: int) -> Layer:
    """A convolution whose output is `size` x `size`, with its batch normalisation or bias."""
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    weights = inputs * outputs * height * width
    return Layer(weights + 2 * outputs, weights * size * size, outputs * size * size)


def _dense(inputs: int, outputs: int) -> Layer:
    return Layer(inputs * outputs + outputs, inputs * outputs, outputs)


def resnet(*blocks: int) -> Layers:
    """Bottleneck residual networks: (3, 4, 6, 3) is ResNet-50."""
    layers = [_conv(3, 64, 7, 112)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width, size = 64 * 2**stage, 56 // 2**stage
        for block in range(count):
            layers += [
                _conv(inputs, width, 1, size),
                _conv(width, width, 3, size),
                _conv(width, 4 * width, 1, size),
            ]
            if block == 0:
                layers.append(_conv(inputs, 4 * width, 1, size))
            inputs = 4 * width
    return (*layers, _dense(2048, 1000))


def vgg16() -> Layers:
    layers, inputs = [], 3
    for width, count, size in (
        (64, 2, 224),
        (128, 2, 112),
        (256, 3, 56),
        (512, 3, 28),
        (512, 3, 14),
    ):
        for _ in range(count):
            layers.append(_conv(inputs, width, 3, size))
            inputs = width
    return (*layers, _dense(25088, 4096), _dense(4096, 4096), _dense(4096, 1000))


def alexnet() -> Layers:
    return (
        _conv(3, 64, 11, 55),
        _conv(64, 192, 5, 27),
        _conv(192, 384, 3, 13),
        _conv(384, 256, 3, 13),
        _conv(256, 256, 3, 13),
        _dense(9216, 4096),
        _dense(4096, 4096),
        _dense(4096, 1000),
    )


def lenet5() -> Layers:
    return (
        _conv(1, 6, 5, 28),
        _conv(6, 16, 5, 10),
        _dense(400, 120),
        _dense(120, 84),
        _dense(84, 10),
    )


def inception_v3() -> Layers:
    stem = [
        _conv(3, 32, 3, 149),
        _conv(32, 32, 3, 147),
        _conv(32, 64, 3, 147),
        _conv(64, 80, 1, 73),
        _conv(80, 192, 3, 71),
    ]
    blocks: list[Layer] = []
    for inputs, pool in ((192, 32), (256, 64), (288, 64)):
        blocks += _mixed_35(inputs, pool)
    blocks += [
        _conv(288, 384, 3, 17),
        _conv(288, 64, 1, 35),
        _conv(64, 96, 3, 35),
        _conv(96, 96, 3, 17),
    ]
    for width in (128, 160, 160, 192):
        blocks += _mixed_17(width)
    blocks += [
        _conv(768, 192, 1, 17),
        _conv(192, 320, 3, 8),
        _conv(768, 192, 1, 17),
        _conv(192, 192, (1, 7), 17),
        _conv(192, 192, (7, 1), 17),
        _conv(192, 192, 3, 8),
    ]
    for inputs in (1280, 2048):
        blocks += _mixed_8(inputs)
    return (*stem, *blocks, _dense(2048, 1000))


def _mixed_35(inputs: int, pool: int) -> list[Layer]:
    return [
        _conv(inputs, 64, 1, 35),
        _conv(inputs, 48, 1, 35),
        _conv(48, 64, 5, 35),
        _conv(inputs, 64, 1, 35),
        _conv(64, 96, 3, 35),
        _conv(96, 96, 3, 35),
        _conv(inputs, pool, 1, 35),
    ]


def _mixed_17(width: int) -> list[Layer]:
    return [
        _conv(768, 192, 1, 17),
        _conv(768, width, 1, 17),
        _conv(width, width, (1, 7), 17),
        _conv(width, 192, (7, 1), 17),
        _conv(768, width, 1, 17),
        _conv(width, width, (7, 1), 17),
        _conv(width, width, (1, 7), 17),
        _conv(width, width, (7, 1), 17),
        _conv(width, 192, (1, 7), 17),
        _conv(768, 192, 1, 17),
    ]


def _mixed_8(inputs: int) -> list[Layer]:
    return [
        _conv(inputs, 320, 1, 8),
        _conv(inputs, 384, 1, 8),
        _conv(384, 384, (1, 3), 8),
        _conv(384, 384, (3, 1), 8),
        _conv(inputs, 448, 1, 8),
        _conv(448, 384, 3, 8),
        _conv(384, 384, (1, 3), 8),
        _conv(384, 384, (3, 1), 8),
        _conv(inputs, 192, 1, 8),
    ]


# GoogLeNet's nine modules: inputs, then 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool; and the size.
_GOOGLENET = (
    (192, 64, 96, 128, 16, 32, 32, 28),
    (256, 128, 128, 192, 32, 96, 64, 28),
    (480, 192, 96, 208, 16, 48, 64, 14),
    (512, 160, 112, 224, 24, 64, 64, 14),
    (512, 128, 128, 256, 24, 64, 64, 14),
    (512, 112, 144, 288, 32, 64, 64, 14),
    (528, 256, 160, 320, 32, 128, 128, 14),
    (832, 256, 160, 320, 32, 128, 128, 7),
    (832, 384, 192, 384, 48, 128, 128, 7),
)


def googlenet() -> Layers:
    layers = [_conv(3, 64, 7, 112), _conv(64, 64, 1, 56), _conv(64, 192, 3, 56)]
    for inputs, one, reduce_3, three, reduce_5, five, pool, size in _GOOGLENET:
        layers += [
            _conv(inputs, one, 1, size),
            _conv(inputs, reduce_3, 1, size),
            _conv(reduce_3, three, 3, size),
            _conv(inputs, reduce_5, 1, size),
            _conv(reduce_5, five, 5, size),
            _conv(inputs, pool, 1, size),
        ]
    return (*layers, _dense(1024, 1000))


def lstm(hidden: int, depth: int, vocabulary: int, steps: int) -> Layers:
    """A word language model: embedding, stacked LSTM layers, softmax; a sample is one sequence."""
    # A cell has four gates, its state and its output.
    cell = Layer(
        8 * hidden * hidden + 8 * hidden, 8.0 * hidden * hidden * steps, 6.0 * hidden * steps
    )
    softmax = Layer(
        hidden * vocabulary + vocabulary,
        float(hidden) * vocabulary * steps,
        float(vocabulary) * steps,
    )
    return (Layer(hidden * vocabulary, 0.0, float(hidden) * steps), *(cell,) * depth, softmax)


def transformer(
    hidden: int, depth: int, vocabulary: int, sequence: int, *, tied: bool = True
) -> Layers:
    """Encoder or decoder blocks with feed-forward layers four times as wide.

    A sample is one sequence. With tied weights the output projection is the embedding, so its
    gradient comes last.
    """
    h, s = hidden, sequence
    attention = Layer(4 * h * h + 6 * h, s * (4.0 * h * h + 2.0 * s * h))
    feed = Layer(8 * h * h + 7 * h, s * 8.0 * h * h)
    embedding = Layer((vocabulary + sequence) * h, float(s) * h * vocabulary if tied else 0.0)
    head = () if tied else (Layer(h * vocabulary, float(s) * h * vocabulary),)
    return (embedding, *(attention, feed) * depth, *head)
