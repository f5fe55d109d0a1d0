"""Predictions for points, only from what a user would know beforehand.

For training that is the hardware, the model, the batch, and the series' own baseline for the speed
of its GPUs; the measured value of the point itself is never used.
"""

from math import inf

from simulator.hardware.constants import Constants
from simulator.validation import collective_points, llm_points, training_points
from simulator.validation.points import BadPoint, Point
from simulator.validation.prediction import Prediction

__all__ = ["Prediction", "predict"]


def predict(point: Point, baseline: Point | None, constants: Constants) -> Prediction:
    """Return the prediction for a point; raise BadPoint if it cannot be predicted."""
    try:
        prediction = _predicted(point, baseline, constants)
    except ArithmeticError as error:
        raise BadPoint(f"its numbers are out of range ({error})") from None
    if prediction.measured <= 0:
        raise BadPoint("the measured value must be above 0")
    if not 0.0 < prediction.predicted < inf:
        raise BadPoint("its fields do not determine a speed (intra, net, n_gpus)")
    return prediction


def _predicted(point: Point, baseline: Point | None, constants: Constants) -> Prediction:
    match point.kind:
        case "train":
            if baseline is None:
                raise BadPoint("its series has no baseline, so the speed of one GPU is unknown")
            return training_points.throughput(point, baseline, constants)
        case "train_efficiency":
            return training_points.efficiency(point, constants)
        case "allreduce":
            return collective_points.all_reduce(point, constants)
        case "allreduce_peak_busbw":
            return collective_points.peak(point)
        case "llm_iter":
            return llm_points.iteration_ms(point, constants)
        case "mfu":
            return llm_points.utilisation(point, constants)
        case "type_ratio":
            return training_points.type_ratio(point)
        case _:
            return training_points.time_to_train(point, constants)
