"""Measured collectives: the time of one, and the bus bandwidth for large messages."""

import numpy as np

from simulator.collectives import nccl
from simulator.collectives.algorithms import butterfly_over_leaves
from simulator.hardware.constants import Constants
from simulator.hardware.networks import Transport
from simulator.training.exchange import USUAL_LEAF, USUAL_OVERSUBSCRIPTION
from simulator.training.placement import RDMA_SHARE, TCP_SHARE, nccl_ranks
from simulator.validation.points import BadPoint, Point, place_of
from simulator.validation.prediction import Prediction


def all_reduce(point: Point, constants: Constants) -> Prediction:
    """Predict the time of an all-reduce in microseconds."""
    place = place_of(point)
    size = point.number("bytes")
    if size <= 0:
        raise BadPoint("bytes must be above 0")
    measured = point.number("time_us")
    if place.gpu.generation == "cpu":
        seconds = float(
            np.asarray(
                butterfly_over_leaves(
                    size,
                    float(place.nodes),
                    constants.mpi_hop_us * 1e-6,
                    1.0 / (place.net_gbs(constants) * 1e9),
                    float(USUAL_LEAF),
                    USUAL_OVERSUBSCRIPTION,
                )
            )
        )
        return Prediction(measured, seconds * 1e6, "us")
    who = nccl_ranks(place, intra_gbs=place.intra_gbs(), net_gbs=place.net_gbs(constants))
    costs = nccl.Costs(constants.nccl_launch_us, constants.nccl_hop_factor)
    return Prediction(measured, float(nccl.all_reduce(size, who, costs).seconds[0]) * 1e6, "us")


def peak(point: Point) -> Prediction:
    """Predict the bus bandwidth that large messages approach."""
    place = place_of(point)
    network = place.network
    share = RDMA_SHARE if network.transport is Transport.RDMA else TCP_SHARE
    net = share * network.line_gbs if place.nodes > 1 else float("inf")
    inside = place.intra_gbs()
    if place.nvls and place.nodes == 1:
        inside *= place.link.in_switch * 2.0 * (place.ranks - 1) / (place.ranks + 1)
    return Prediction(point.number("busbw_gbs"), min(inside, net), "GB/s")
