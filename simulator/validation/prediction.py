"""What a prediction is: the measured value beside the model's, in the unit of the point."""

from typing import NamedTuple


class Prediction(NamedTuple):
    measured: float
    predicted: float
    unit: str
    # Throughput over what as many GPUs would do without any loss; None where there is no such.
    efficiency: float | None = None
