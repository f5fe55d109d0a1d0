"""Measured throughputs by placement and by type of GPU, converted to points.

Pollux (Qiao et al. 2021) published step times of jobs for every way to spread up to 64 T4 over
nodes of four; Gavel (Narayanan et al. 2020) steps per second on V100, P100 and K80, in one node and
spread over many. One GPU of each is the baseline. Only models whose size is known are taken.
"""

import csv
import io
import json
import tarfile
from ast import literal_eval
from collections.abc import Iterable, Mapping
from gzip import decompress
from typing import Any

from simulator.validation.points import BadPoint

Row = dict[str, Any]

# Folder of Pollux's archive -> name and parameters of its model.
_POLLUX = {
    "imagenet": ("resnet50", 25.56e6),
    "cifar10": ("resnet18", 11.17e6),
    "bert": ("bert_base", 110e6),
    "yolov3": ("yolov3", 61.9e6),
}
# g4dn.12xlarge: four T4, 50 Gb/s; EC2 gives one flow 5 Gb/s outside of placement groups.
_T4_NODE = {"gpu": "T4", "intra": "pcie3", "net": "50GbE", "net_gbps": 50, "flow_cap_gbps": 5}
_GAVEL = {"ResNet-50": ("resnet50", 25.56e6), "ResNet-18": ("resnet18", 11.17e6)}
_INTRA = {"v100": "nvlink2", "p100": "pcie3", "k80": "pcie3"}
_SPREAD = "_unconsolidated"


def document_of(content: bytes) -> object:
    """Return the points of a file, converted if it is Pollux's archive or Gavel's rates.

    Raise BadPoint if the file looks like Gavel's rates but has another form.
    """
    if content[:2] == b"\x1f\x8b":
        content = decompress(content)
    if content[257:262] == b"ustar":
        return {"points": pollux_points(content)}
    document = json.loads(content)
    if isinstance(document, Mapping) and "points" not in document and "v100" in document:
        try:
            return {"points": gavel_points(document)}
        except (AttributeError, KeyError, SyntaxError, TypeError, ValueError):
            raise BadPoint("it has v100 as Gavel's rates do, but not their form") from None
    return document


def pollux_points(archive: bytes) -> list[Row]:
    """Return the step times of `placements.csv` and `scalability.csv` as throughput."""
    rows: list[Row] = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        names = set(files.getnames())
        for folder, (model, params) in _POLLUX.items():
            for kind in ("placements", "scalability"):
                name = f"traces/{folder}/{kind}.csv"
                file = files.extractfile(name) if name in names else None
                if file is None:
                    raise BadPoint(f"the archive has no {name}")
                lines = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
                rows += _pollux_rows(model, params, lines)
    return rows


def _pollux_rows(model: str, params: float, lines: Iterable[Mapping[str, str]]) -> list[Row]:
    rows = []
    for line in lines:
        if "placement" in line:
            where = line["placement"]
            gpus, nodes = sum(map(int, where)), len(where)
        else:
            gpus, nodes = int(line["num_replicas"]), int(line["num_nodes"])
            where = f"{gpus}on{nodes}"
        batch = float(line["local_bsz"])
        rate = gpus * batch / float(line["step_time"])
        series = f"pollux_t4/{model}/b{batch:g}"
        row = _row("pollux_t4", series, model, params, gpus, nodes, batch, rate, _T4_NODE)
        rows.append(row | {"id": f"{series}/{where}"})
    return rows


def gavel_points(document: Mapping[str, Any]) -> list[Row]:
    """Return the rates of ResNets on one to eight GPUs, packed and spread, and ratios of GPU types."""
    rows: list[Row] = []
    alone: dict[tuple[str, float], dict[str, float]] = {}
    for kind, jobs in document.items():
        gpu = kind.removesuffix(_SPREAD)
        hardware = {
            "gpu": gpu.upper(),
            "intra": _INTRA[gpu],
            "net": "unspecified",
            "transport": "tcp",
        }
        for job, rates in jobs.items():
            name, gpus = literal_eval(job)
            known = _GAVEL.get(name.partition(" (")[0])
            steps = rates.get("null") or 0.0
            if known is None or steps <= 0.0:
                continue
            model, params = known
            batch = float(name.partition("batch size ")[2].rstrip(")"))
            if gpus == 1:
                alone.setdefault((model, batch), {})[gpu.upper()] = steps
            nodes = gpus if kind.endswith(_SPREAD) else 1
            series = f"gavel_{kind}/{model}/b{batch:g}"
            rate = steps * batch
            rows.append(
                _row(f"gavel_{gpu}", series, model, params, gpus, nodes, batch, rate, hardware)
            )
    return [*rows, *_type_ratios(alone)]


def _type_ratios(alone: Mapping[tuple[str, float], Mapping[str, float]]) -> list[Row]:
    """Return how much faster one GPU type is than another, for the models of the catalogue."""
    return [
        {
            "id": f"{model}/b{batch:g}/{fast}:{slow}",
            "series": f"gavel_types/{model}",
            "system": "gavel_types",
            "kind": "type_ratio",
            "model": model,
            "batch": batch,
            "gpu": fast,
            "than": slow,
            "ratio": rates[fast] / rates[slow],
        }
        for (model, batch), rates in alone.items()
        for fast, slow in (("V100", "P100"), ("P100", "K80"), ("V100", "K80"))
        if model == "resnet50" and fast in rates and slow in rates
    ]


def _row(
    system: str,
    series: str,
    model: str,
    params: float,
    gpus: int,
    nodes: int,
    batch: float,
    rate: float,
    hardware: Mapping[str, Any],
) -> Row:
    return {
        "id": f"{series}/{gpus}on{nodes}",
        "series": series,
        "system": system,
        "kind": "train",
        "role": "baseline" if gpus == 1 else "point",
        "model": model,
        "params": params,
        "n_gpus": gpus,
        "n_nodes": nodes,
        "batch": batch,
        "throughput": rate,
        "unit": "samples/s",
        "comm": "ring",
        "grad_bytes": 4,
        "transport": "tcp",
        **hardware,
    }
