"""What exporters call their numbers, and readings made of them. Pure.

DCGM-exporter's names are taken, and those of the NVML exporter that Arena and older clusters use.
Where both are there, the first in the table counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from controlplane.ports import DeviceHistory, DeviceReading, LinkReading, Point

# (NAMESPACE, POD) -> the id of its job, and its rank.
Pods = Mapping[tuple[str, str], tuple[str, int]]


class Counter(NamedTuple):
    """A series, what it measures, and by what its value is multiplied to get our unit."""

    name: str
    measures: str
    factor: float = 1.0


_MIB = 2.0**-20
COUNTERS = (
    Counter("DCGM_FI_DEV_GPU_UTIL", "duty", 0.01),
    # Of a device that is cut in parts (MIG) only this one is known.
    Counter("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "duty"),
    Counter("nvidia_gpu_duty_cycle", "duty", 0.01),
    Counter("DCGM_FI_DEV_FB_USED", "used"),
    Counter("nvidia_gpu_memory_used_bytes", "used", _MIB),
    Counter("DCGM_FI_DEV_FB_FREE", "free"),
    Counter("DCGM_FI_DEV_FB_TOTAL", "total"),
    Counter("nvidia_gpu_memory_total_bytes", "total", _MIB),
    Counter("DCGM_FI_DEV_GPU_TEMP", "temperature"),
    Counter("nvidia_gpu_temperature_celsius", "temperature"),
    Counter("DCGM_FI_DEV_POWER_USAGE", "power"),
    Counter("nvidia_gpu_power_usage_milliwatts", "power", 0.001),
)
# Bytes a second that pass, as the profiling counters give them.
_GBPS = 8e-9
LINKS = (
    Counter("DCGM_FI_PROF_NVLINK_TX_BYTES", "nvlink", _GBPS),
    Counter("DCGM_FI_PROF_NVLINK_RX_BYTES", "nvlink", _GBPS),
    Counter("DCGM_FI_PROF_PCIE_TX_BYTES", "pcie", _GBPS),
    Counter("DCGM_FI_PROF_PCIE_RX_BYTES", "pcie", _GBPS),
)
PAST = ("duty", "used", "temperature", "power")

# Where a label may be found; the first that says something counts. What an exporter says of itself
# is renamed by Prometheus (`exported_`) where a target's own label has the same name.
NODE = ("node", "kubernetes_node", "node_name", "Hostname", "hostname", "instance")
DEVICE = ("gpu", "minor_number", "device")
NAMESPACE = ("exported_namespace", "namespace_name", "namespace")
POD = ("exported_pod", "pod_name", "pod")


def instant_query(counters: Sequence[Counter] = COUNTERS + LINKS) -> str:
    return f'{{__name__=~"{"|".join(counter.name for counter in counters)}"}}'


def node_query(node: str) -> str:
    """What was measured on a node, whatever the label is called that names it."""
    # An instance has a port behind its name.
    value = f"{_quoted(node)}(:[0-9]+)?"
    return _either(f'{label}=~"{value}"' for label in NODE)


def pods_query(namespace: str, pods: Iterable[str]) -> str:
    """What was measured of devices that these pods had."""
    names = "|".join(_quoted(pod) for pod in sorted(pods))
    where = _quoted(namespace)
    return _either(
        (f'{pod}=~"{names}",{space}=~"{where}"' for pod, space in zip(POD, NAMESPACE, strict=True))
    )


def _either(matchers: Iterable[str]) -> str:
    names = "|".join(counter.name for counter in COUNTERS if counter.measures in PAST)
    return " or ".join(f'{{__name__=~"{names}",{matcher}}}' for matcher in matchers)


def _quoted(text: str) -> str:
    """For a regular expression within a string."""
    return re.escape(text).replace("\\", "\\\\").replace('"', '\\"')


# ---------------------------------------------------------------- readings


class _Key(NamedTuple):
    node: str
    device: int


def device_readings(result: Iterable[Mapping[str, Any]], pods: Pods) -> list[DeviceReading]:
    """One reading a device, from the answer to an instant query."""
    found: dict[_Key, dict[str, float]] = {}
    holders: dict[_Key, tuple[str, int]] = {}
    for sample, counter in _ranked(result, COUNTERS):
        key, value = _key(sample["metric"]), _number(sample.get("value"))
        if key is None or value is None:
            continue
        found.setdefault(key, {}).setdefault(counter.measures, value * counter.factor)
        holder = pods.get(pod_of(sample["metric"]))
        if holder is not None:
            # A device that pods share is told of once for each; the first by name is taken.
            holders[key] = min(holders.get(key, holder), holder)
    return [_reading(key, found[key], holders.get(key)) for key in sorted(found)]


def _reading(key: _Key, seen: Mapping[str, float], holder: tuple[str, int] | None) -> DeviceReading:
    used = seen.get("used", 0.0)
    total = seen.get("total", used + seen["free"] if "free" in seen else 0.0)
    job, rank = holder or ("", None)
    return DeviceReading(
        key.node,
        key.device,
        job,
        round(seen.get("duty", 0.0), 4),
        round(used),
        round(total),
        seen.get("temperature", 0.0),
        round(seen.get("power", 0.0), 1),
        rank,
    )


def link_readings(result: Iterable[Mapping[str, Any]]) -> list[LinkReading]:
    """What passes over the links of each device, both ways together."""
    passing: dict[str, float] = {}
    for sample, counter in _ranked(result, LINKS):
        key, value = _key(sample["metric"]), _number(sample.get("value"))
        if key is not None and value is not None:
            link = f"{counter.measures}/{key.node}/{key.device}"
            passing[link] = passing.get(link, 0.0) + value * counter.factor
    return [LinkReading(link, 0.0, 0.0, round(passing[link], 3)) for link in sorted(passing)]


def histories(result: Iterable[Mapping[str, Any]], pods: Mapping[str, int]) -> list[DeviceHistory]:
    """One history for each device and rank, from the answer to a range query."""
    seen: dict[tuple[_Key, int | None], dict[float, dict[str, float]]] = {}
    for sample, counter in _ranked(result, COUNTERS):
        key = _key(sample["metric"])
        if key is None or counter.measures not in PAST:
            continue
        times = seen.setdefault((key, pods.get(pod_of(sample["metric"])[1])), {})
        for pair in sample.get("values") or ():
            value = _number(pair)
            if value is not None:
                at = times.setdefault(float(pair[0]), {})
                at.setdefault(counter.measures, value * counter.factor)
    order = sorted(seen, key=lambda each: (each[1] if each[1] is not None else -1, each[0]))
    return [
        DeviceHistory(key.node, key.device, rank, _points(seen[key, rank])) for key, rank in order
    ]


def _points(times: Mapping[float, Mapping[str, float]]) -> tuple[Point, ...]:
    found = []
    for at in sorted(times):
        values = times[at]
        duty, used, power = values.get("duty"), values.get("used"), values.get("power")
        found.append(
            Point(
                at,
                None if duty is None else round(duty, 4),
                None if used is None else round(used),
                values.get("temperature"),
                None if power is None else round(power, 1),
            )
        )
    return tuple(found)


def _ranked(
    result: Iterable[Mapping[str, Any]], counters: Sequence[Counter]
) -> list[tuple[Mapping[str, Any], Counter]]:
    """The samples that are in the table, in the table's order and not in the server's."""
    places = {counter.name: index for index, counter in enumerate(counters)}
    known = [
        (places[sample["metric"]["__name__"]], number, sample)
        for number, sample in enumerate(result)
        if sample["metric"].get("__name__") in places
    ]
    return [(sample, counters[place]) for place, _, sample in sorted(known, key=lambda x: x[:2])]


def _key(labels: Mapping[str, str]) -> _Key | None:
    device = _first(labels, DEVICE)
    # `device` says nvidia3, the others say 3.
    digits = re.search(r"\d+$", device)
    node = _first(labels, NODE)
    if digits is None or not node:
        return None
    if labels.get("instance") == node:
        node = node.rpartition(":")[0] or node
    return _Key(node, int(digits.group()))


def pod_of(labels: Mapping[str, str]) -> tuple[str, str]:
    return _first(labels, NAMESPACE), _first(labels, POD)


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _number(pair: Any) -> float | None:
    """The value of a sample; what is not a number (no measurement, or an infinite one) is none."""
    try:
        value = float(pair[1])
    except (TypeError, ValueError, IndexError):
        return None
    return value if abs(value) < 1e18 else None
