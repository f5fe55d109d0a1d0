"""The metric names of GPU exporters, the queries for them, and readings from the answers. Pure.

The names are those of DCGM-exporter, and of the NVML exporter that Arena and older clusters use.
Where a device has several metrics for one quantity, the first in the table counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from controlplane.ports import DeviceHistory, DeviceReading, LinkReading, Point

# (namespace, pod) -> (job id, rank).
Pods = Mapping[tuple[str, str], tuple[str, int]]


class Counter(NamedTuple):
    """A metric, the quantity that it measures, and the factor that converts it to our unit."""

    name: str
    measures: str
    factor: float = 1.0


_MIB = 2.0**-20
COUNTERS = (
    Counter("DCGM_FI_DEV_GPU_UTIL", "duty", 0.01),
    # For a partitioned device (MIG) only this metric exists.
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
# The profiling metrics are in bytes per second; readings are in Gbit/s.
_GBPS = 8e-9
LINKS = (
    Counter("DCGM_FI_PROF_NVLINK_TX_BYTES", "nvlink", _GBPS),
    Counter("DCGM_FI_PROF_NVLINK_RX_BYTES", "nvlink", _GBPS),
    Counter("DCGM_FI_PROF_PCIE_TX_BYTES", "pcie", _GBPS),
    Counter("DCGM_FI_PROF_PCIE_RX_BYTES", "pcie", _GBPS),
)
# The quantities that a history contains.
PAST = ("duty", "used", "temperature", "power")

# The names that a label may have; the first that is not empty counts. Prometheus renames a label of
# an exporter (`exported_`) where the target has a label with the same name.
NODE = ("node", "kubernetes_node", "node_name", "Hostname", "hostname", "instance")
DEVICE = ("gpu", "minor_number", "device")
NAMESPACE = ("exported_namespace", "namespace_name", "namespace")
POD = ("exported_pod", "pod_name", "pod")


def instant_query(counters: Sequence[Counter] = COUNTERS + LINKS) -> str:
    """Return a query for the latest values of all `counters`."""
    return f'{{__name__=~"{"|".join(counter.name for counter in counters)}"}}'


def node_query(node: str) -> str:
    """Return a query for the metrics of a node, with any of the label names in `NODE`."""
    # The label `instance` has a port after the name.
    value = f"{_quoted(node)}(:[0-9]+)?"
    return _either(f'{label}=~"{value}"' for label in NODE)


def pods_query(namespace: str, pods: Iterable[str]) -> str:
    """Return a query for the metrics of devices that these pods use or used."""
    names = "|".join(_quoted(pod) for pod in sorted(pods))
    where = _quoted(namespace)
    return _either(
        (f'{pod}=~"{names}",{space}=~"{where}"' for pod, space in zip(POD, NAMESPACE, strict=True))
    )


def _either(matchers: Iterable[str]) -> str:
    names = "|".join(counter.name for counter in COUNTERS if counter.measures in PAST)
    return " or ".join(f'{{__name__=~"{names}",{matcher}}}' for matcher in matchers)


def _quoted(text: str) -> str:
    """Escape `text` for a regular expression within a PromQL string."""
    return re.escape(text).replace("\\", "\\\\").replace('"', '\\"')


# ---------------------------------------------------------------- readings


class _Key(NamedTuple):
    node: str
    device: int


def device_readings(result: Iterable[Mapping[str, Any]], pods: Pods) -> list[DeviceReading]:
    """Return one reading per device, sorted, from the answer to an instant query.

    A quantity without a metric is 0. A device without a known pod has an empty job.
    """
    values: dict[_Key, dict[str, float]] = {}
    holders: dict[_Key, tuple[str, int]] = {}
    for sample, counter in _ranked(result, COUNTERS):
        key, value = _key(sample["metric"]), _number(sample.get("value"))
        if key is None or value is None:
            continue
        values.setdefault(key, {}).setdefault(counter.measures, value * counter.factor)
        holder = pods.get(pod_of(sample["metric"]))
        if holder is not None:
            # A device that pods share has one sample per pod; the first job by id is used.
            holders[key] = min(holders.get(key, holder), holder)
    return [_reading(key, values[key], holders.get(key)) for key in sorted(values)]


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
    """Return the traffic on the links of each device, both directions together, in Gbit/s."""
    passing: dict[str, float] = {}
    for sample, counter in _ranked(result, LINKS):
        key, value = _key(sample["metric"]), _number(sample.get("value"))
        if key is not None and value is not None:
            link = f"{counter.measures}/{key.node}/{key.device}"
            passing[link] = passing.get(link, 0.0) + value * counter.factor
    return [LinkReading(link, 0.0, 0.0, round(passing[link], 3)) for link in sorted(passing)]


def histories(result: Iterable[Mapping[str, Any]], pods: Mapping[str, int]) -> list[DeviceHistory]:
    """Return one history per device and rank, from the answer to a range query.

    `pods` maps pod names to ranks; for other pods the rank is None. A missing value is None.
    """
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
    points = []
    for at in sorted(times):
        values = times[at]
        duty, used, power = values.get("duty"), values.get("used"), values.get("power")
        points.append(
            Point(
                at,
                None if duty is None else round(duty, 4),
                None if used is None else round(used),
                values.get("temperature"),
                None if power is None else round(power, 1),
            )
        )
    return tuple(points)


def _ranked(
    result: Iterable[Mapping[str, Any]], counters: Sequence[Counter]
) -> list[tuple[Mapping[str, Any], Counter]]:
    """Return the samples whose metric is in `counters`, in the order of that table."""
    places = {counter.name: index for index, counter in enumerate(counters)}
    known = [
        (places[sample["metric"]["__name__"]], number, sample)
        for number, sample in enumerate(result)
        if sample["metric"].get("__name__") in places
    ]
    return [(sample, counters[place]) for place, _, sample in sorted(known, key=lambda x: x[:2])]


def _key(labels: Mapping[str, str]) -> _Key | None:
    device = _first(labels, DEVICE)
    # The label `device` has the form nvidia3, the others the form 3.
    digits = re.search(r"\d+$", device)
    node = _first(labels, NODE)
    if digits is None or not node:
        return None
    if labels.get("instance") == node:
        node = node.rpartition(":")[0] or node
    return _Key(node, int(digits.group()))


def pod_of(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return (namespace, pod) of a sample; "" for what its labels do not name."""
    return _first(labels, NAMESPACE), _first(labels, POD)


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _number(pair: Any) -> float | None:
    """Return the value of a sample; None if it is missing, NaN, infinite or at least 1e18."""
    try:
        value = float(pair[1])
    except (TypeError, ValueError, IndexError):
        return None
    return value if abs(value) < 1e18 else None
