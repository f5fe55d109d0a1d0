"""A prediction: the measured and the predicted value, in the unit of the point."""

from typing import NamedTuple


class Prediction(NamedTuple):
    """The measured and the predicted value of one point."""

    measured: float
    predicted: float
    unit: str
    # Throughput over that of as many GPUs without any loss; None where that is not defined.
    efficiency: float | None = None
