"""Random faults.

Every node and every rack has its own random stream, so adding a node changes nothing for the others.
Times count from the cluster's birth, so a model that is created again later continues the same
streams. Streams are seeded with text, through SHA-512, so they do not depend on PYTHONHASHSEED.
"""

import heapq
import random
from collections.abc import Iterator
from math import exp, log, sqrt

from simulator.faults.model import Fault, FaultKind, FaultModel, Window
from simulator.faults.presets import DAY, Cause, Preset


def chance_crashes(node: str, model: FaultModel, seed: int) -> Iterator[Fault]:
    """Yield the crashes of one node in the order of time, without end; none if it has no MTBF."""
    if model.node_mtbf_s is None:
        return
    dice = random.Random(f"{seed}/{node}/crash")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(1.0 / model.node_mtbf_s)
        repair_s = dice.expovariate(1.0 / model.node_repair_s)
        yield Fault(at_s, node, repair_s)
        at_s += repair_s


def node_faults(node: str, rack: str, model: FaultModel, seed: int) -> Iterator[Fault]:
    """Yield all faults of one node alone, in the order of time."""
    streams = [chance_crashes(node, model, seed)]
    if model.preset is not None:
        streams.append(_own_faults(node, model.preset, seed))
        streams.append(_slow_downs(node, model.preset, seed))
    if model.spot is not None and (not model.spot.racks or rack in model.spot.racks):
        streams.append(_reclaims(node, model, seed))
    streams += [_maintenance(node, w) for w in model.windows if w.rack in ("", rack)]
    return heapq.merge(*streams, key=lambda fault: fault.at_s)


def rack_faults(rack: str, nodes: tuple[str, ...], model: FaultModel, seed: int) -> Iterator[Fault]:
    """Yield the faults that several nodes of a rack share: a switch, a cable, a power feed."""
    if model.preset is None or not nodes:
        return
    preset = model.preset
    causes = tuple(cause for cause in preset.causes if cause.rack)
    rate = preset.node_rate_day * _share(preset, causes) * len(nodes) / DAY
    if rate <= 0.0:
        return
    dice = random.Random(f"{seed}/{rack}/rack")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(rate)
        cause = _drawn(dice, causes)
        repair_s = _repair_s(dice, preset, cause)
        # Most of them affect one node; a failed switch affects several neighbours at once.
        count = 1 if dice.random() < 0.6 else min(len(nodes), 2 + int(dice.expovariate(0.5)))
        first = dice.randrange(len(nodes))
        for i in range(count):
            yield Fault(at_s, nodes[(first + i) % len(nodes)], repair_s, cause=cause.name)


def rate_factor(node: str, preset: Preset, seed: int) -> float:
    """Return the fault rate of this node relative to the mean node."""
    dice = random.Random(f"{seed}/{node}/lemon")
    if preset.frailty is not None:
        return dice.gammavariate(preset.frailty, 1.0 / preset.frailty)
    if not preset.lemon_share:
        return 1.0
    mean = 1.0 + preset.lemon_share * (preset.lemon_factor - 1.0)
    lemon = dice.random() < preset.lemon_share
    return (preset.lemon_factor if lemon else 1.0) / mean


def _own_faults(node: str, preset: Preset, seed: int) -> Iterator[Fault]:
    causes = tuple(cause for cause in preset.causes if not cause.rack)
    rate = preset.node_rate_day * _share(preset, causes) * rate_factor(node, preset, seed) / DAY
    if rate <= 0.0:
        return
    dice = random.Random(f"{seed}/{node}/fault")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(rate)
        cause = _drawn(dice, causes)
        repair_s = _repair_s(dice, preset, cause)
        yield Fault(at_s, node, repair_s, cause=cause.name)
        at_s += repair_s


def _slow_downs(node: str, preset: Preset, seed: int) -> Iterator[Fault]:
    """Yield undetected slow-downs of a node, its link or its storage."""
    if preset.slow_rate_day <= 0.0:
        return
    dice = random.Random(f"{seed}/{node}/slow")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(preset.slow_rate_day / DAY)
        drawn = dice.random()
        kind, cause, factor = (
            (FaultKind.SLOW, "straggler", preset.slow_factor)
            if drawn < 0.6
            else (FaultKind.LINK, "degraded link", 0.5)
            if drawn < 0.85
            else (FaultKind.STORAGE, "storage stall", 0.5)
        )
        for_s = dice.expovariate(1.0 / preset.slow_s)
        yield Fault(at_s, node, for_s, kind, cause, factor)
        at_s += for_s


def _reclaims(node: str, model: FaultModel, seed: int) -> Iterator[Fault]:
    assert model.spot is not None
    spot = model.spot
    dice = random.Random(f"{seed}/{node}/spot")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(1.0 / spot.mean_s)
        gone_s = dice.expovariate(1.0 / spot.gone_s)
        yield Fault(at_s, node, gone_s, FaultKind.SPOT_RECLAIM, notice_s=spot.notice_s)
        at_s += gone_s


def _maintenance(node: str, window: Window) -> Iterator[Fault]:
    at_s = window.at_s
    while True:
        yield Fault(at_s, node, window.duration_s, FaultKind.MAINTENANCE, "planned maintenance")
        if window.every_s is None:
            return
        at_s += window.every_s


def _share(preset: Preset, causes: tuple[Cause, ...]) -> float:
    whole = sum(cause.count for cause in preset.causes)
    return sum(cause.count for cause in causes) / whole if whole else 0.0


def _drawn(dice: random.Random, causes: tuple[Cause, ...]) -> Cause:
    return dice.choices(causes, [cause.count for cause in causes])[0]


def _repair_s(dice: random.Random, preset: Preset, cause: Cause) -> float:
    """Return the repair time: a reboot for software, a lognormal time for hardware."""
    if not cause.hardware:
        return preset.reboot_s
    return lognormal(dice, preset.repair_median_s, preset.repair_mean_s)


def lognormal(dice: random.Random, median: float, mean: float) -> float:
    """Draw from the lognormal distribution with this median and mean."""
    sigma = sqrt(2.0 * log(mean / median)) if mean > median else 0.0
    return median * exp(sigma * dice.gauss(0.0, 1.0)) if sigma else median
