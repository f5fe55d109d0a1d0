"""Measured throughputs of Pollux and Gavel as points, and how well they are predicted."""

import io
import json
import tarfile
from gzip import compress
from typing import Any

import pytest

from simulator.validation.profiles import document_of
from simulator.validation.scores import Validation, read_points, validate
from tests.shared_data import shared

FOLDERS = ("imagenet", "cifar10", "bert", "yolov3")


def _validated(document: object) -> Validation:
    cases, failed = read_points(document)
    return validate(cases, failed=failed)


def _archive() -> bytes:
    placements = "placement,local_bsz,step_time,sync_time\n1,32,0.25,0.0\n13,32,0.5,0.1\n"
    scalability = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,24,32,0.6,0.2\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for folder in FOLDERS:
            for name, text in (("placements", placements), ("scalability", scalability)):
                entry = tarfile.TarInfo(f"traces/{folder}/{name}.csv")
                entry.size = len(text)
                files.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def _points(content: bytes) -> list[dict[str, Any]]:
    document = document_of(content)
    assert isinstance(document, dict)
    rows = document["points"]
    assert isinstance(rows, list)
    return rows


def test_step_times_by_placement_become_throughputs_relative_to_one_gpu() -> None:
    rows = [row for row in _points(_archive()) if row["model"] == "bert_base"]
    columns = [(r["role"], r["n_gpus"], r["n_nodes"], r["throughput"]) for r in rows]
    assert columns == [
        ("baseline", 1, 1, 32 / 0.25),
        ("point", 4, 2, 4 * 32 / 0.5),
        ("point", 24, 6, 24 * 32 / 0.6),
    ]
    assert _validated({"points": rows}).failed == ()


def test_rates_by_type_become_points_and_ratios() -> None:
    def job(name: str, gpus: int, rate: float) -> dict[str, dict[str, float]]:
        return {str((name, gpus)): {"null": rate}}

    rates = {
        "v100": {**job("ResNet-50 (batch size 64)", 1, 4.4), **job("A3C", 1, 9.0)},
        "p100": job("ResNet-50 (batch size 64)", 1, 2.6),
        "p100_unconsolidated": {
            **job("ResNet-50 (batch size 64)", 1, 2.6),
            **job("ResNet-50 (batch size 64)", 4, 9.0),
            **job("ResNet-50 (batch size 64)", 8, 0.0),
        },
    }
    rows = _points(compress(json.dumps(rates).encode()))
    spread = [row for row in rows if row["kind"] == "train" and row["role"] == "point"]
    assert [(r["n_gpus"], r["n_nodes"], r["throughput"]) for r in spread] == [(4, 4, 9.0 * 64)]
    (ratio,) = [row for row in rows if row["kind"] == "type_ratio"]
    assert (ratio["gpu"], ratio["than"], ratio["ratio"]) == ("V100", "P100", 4.4 / 2.6)
    validation = _validated({"points": rows})
    assert validation.groups["types of GPU"].mape < 15.0
    assert validation.failed == ()


def test_a_file_of_points_is_taken_as_it_is() -> None:
    document = {"points": [{"kind": "train"}]}
    assert document_of(json.dumps(document).encode()) == document


def test_every_way_to_spread_t4_over_nodes_is_predicted_and_ranked() -> None:
    """Nothing is fitted on these 4,000 measurements of Pollux."""
    archive = shared("traces", "pollux_profiles_and_workloads.tar.gz").read_bytes()
    validation = _validated(document_of(archive))
    assert len(validation.points) > 4_000
    assert validation.failed == ()
    assert validation.groups["training"].mape < 15.0
    assert validation.ranking.percent > 93.0


def test_types_of_gpu_compare_as_gavel_measured() -> None:
    packed = shared("traces", "gavel_throughputs_v100_p100_k80.json.gz").read_bytes()
    validation = _validated(document_of(packed))
    assert validation.failed == ()
    assert validation.groups["types of GPU"].mape < 12.0
    for gpu, worst in (("K80", 15.0), ("P100", 25.0)):
        errors = [abs(p.error) for p in validation.points if p.system == f"gavel_{gpu.lower()}"]
        assert 100.0 * sum(errors) / len(errors) < worst
    assert validation.ranking.percent > 85.0


@pytest.mark.parametrize("content", [b"{", b"\x1f\x8bnonsense", b"\xff\xfe"])
def test_what_is_no_such_file_is_an_error_of_the_content(content: bytes) -> None:
    with pytest.raises((ValueError, OSError, EOFError)):
        document_of(content)
