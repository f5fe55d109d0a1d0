"""Questions to the physics from the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES, Muster
from tests.simulator.test_validation import BASELINE, POINT

ALIBABA = ("--model", "ResNet-50", "--gpu", "P100", "--link", "pcie3", "--gpus", "64")
NETWORK = ("--nodes", "8", "--net", "25GbE", "--compression", "fp16")


def test_a_step_is_explained_and_plotted(muster: Muster) -> None:
    shown = muster("sim", "step", *ALIBABA, *NETWORK).out
    assert "64 x P100 on 8 nodes" in shown
    assert "waiting for stragglers" in shown
    assert "o ring   x ps-node   + ps" in shown


def test_a_step_as_json_compares_schemes(muster: Muster) -> None:
    schemes = muster("sim", "step", *ALIBABA, *NETWORK, "--json").json["schemes"]
    assert 0.87 < schemes["ring"]["efficiency"] < 0.93
    assert schemes["ring"]["samples_per_s"] > 1.25 * schemes["ps"]["samples_per_s"]
    parts = schemes["ring"]["parts_s"]
    assert abs(sum(parts.values()) - schemes["ring"]["step_s"]) < 1e-9


def test_a_language_model_is_cut_three_ways(muster: Muster) -> None:
    args = ("--model", "gpt_39.1b", "--gpu", "A100-80", "--gpus", "512", "--nodes", "64")
    ran = muster("sim", "step", *args, "--net", "8x200Gb HDR IB", "--tensor", 8, "--pipeline", 4)
    assert ran.code == 0
    assert "bubble" in ran.out
    bad = muster("sim", "step", *args, "--net", "8x200Gb HDR IB", "--tensor", 7)
    assert bad.code == 2
    assert "tensor" in bad.err


def test_a_collective_shows_what_nccl_would_choose(muster: Muster) -> None:
    shown = muster("sim", "collective", "--size", "1GB", "--gpu", "V100", "--gpus", 8).out
    assert "by ring, Simple" in shown
    assert "all-to-all" in shown
    ran = muster("sim", "collective", "--size", "8kB", "--gpu", "V100", "--gpus", 8, "--json")
    assert ran.json["nccl"]["protocol"] == "LL"
    assert muster("sim", "collective", "--size", "much").code == 2


def test_unknown_hardware_is_a_wrong_usage(muster: Muster) -> None:
    ran = muster("sim", "step", "--gpu", "Z9000")
    assert ran.code == 2
    assert "no GPU 'Z9000'" in ran.err
    assert muster("sim", "step", "--scheme", "magic").code == 2
    assert muster("sim", "step", "--gpus", 4, "--nodes", 8).code == 2


def test_a_file_of_points_is_validated(muster: Muster, tmp_path: Path) -> None:
    points = tmp_path / "points.json"
    bad = POINT | {"id": "bad", "gpu": "Z9000"}
    points.write_text(json.dumps({"points": [BASELINE, POINT, bad]}))
    shown = muster("sim", "validate", "--points", points)
    assert shown.code == 0
    assert "training" in shown.out
    assert "bad (lab) was not predicted: no GPU 'Z9000'" in shown.out
    out = tmp_path / "validation.json"
    args = ("--json", "--out", out, "--plots", tmp_path / "plots")
    validated = muster("sim", "validate", "--points", points, *args).json
    assert [point["id"] for point in validated["points"]] == ["p"]
    assert set(validated["groups"]["training"]) == {"points", "mape", "median", "p90"}
    assert json.loads(out.read_text()) == validated
    assert (tmp_path / "plots" / "training.svg").read_text().startswith("<svg")


def test_a_file_that_holds_no_points_is_refused(muster: Muster, tmp_path: Path) -> None:
    points = tmp_path / "points.json"
    assert muster("sim", "validate", "--points", points).code == 2
    for text in ("{", "{}", '{"points": []}'):
        points.write_text(text)
        assert muster("sim", "validate", "--points", points).code == 2


def test_a_cluster_file_is_summed_up_and_drawn(muster: Muster) -> None:
    shown = muster("sim", "cluster", EXAMPLES / "physics-cluster.yaml")
    assert shown.code == 0
    assert "32 nodes in 3 racks" in shown.out
    assert "2:1 oversubscribed" in shown.out
    assert "nvlink3 (240 GB/s)" in shown.out
    assert "########" in shown.out
    assert "faults as rsc1" in shown.out
    view = muster("sim", "cluster", EXAMPLES / "physics-cluster.yaml", "--json").json
    assert view["gpus"] == 16 * 8 + 8 * 4 + 8 * 8
    assert muster("sim", "cluster", EXAMPLES / "cluster.yaml").code == 0


def test_a_wrong_cluster_file_names_the_field(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    for text, message in (
        ("racks: [{name: a, gpu_type: A100, net: pigeons}]", "racks[0].net"),
        ("racks: [{name: a, server: p9}]", "racks[0].server"),
        ("racks: [{name: a}]\nfaults: {preset: mars}", "faults.preset"),
        ("racks: [{name: a}]\npools: [{rack: b}]", "pools[0].rack"),
        ("racks: [{name: a}]\nfabric: {oversubscription: 0}", "fabric.oversubscription"),
    ):
        file.write_text(text)
        ran = muster("sim", "cluster", file)
        assert ran.code == 2
        assert message in ran.err


def test_a_recorded_topology_becomes_a_cluster_file(muster: Muster, tmp_path: Path) -> None:
    recorded, made = tmp_path / "topo.csv", tmp_path / "cluster.yaml"
    recorded.write_text("host,PSW,ASW\n0,P1,S1\n1,P1,S2\n2,P1,S1\n", "utf-8")
    ran = muster("sim", "topology", recorded, "--server", "dgx-a100", "--out", made)
    assert "3 nodes under 2 leaves, 24 GPUs" in ran.out
    assert "2 racks, 24 GPUs" in muster("sim", "cluster", made).out
    recorded.write_text("rack,switch\n0,1\n", "utf-8")
    bad = muster("sim", "topology", recorded, "--server", "dgx-a100")
    assert bad.code == 2
    assert "host and its ASW" in bad.err
    wrong = muster("sim", "topology", tmp_path / "absent.csv")
    assert wrong.code == 1


def test_two_ways_to_leave_points_out_are_not_one_question(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "points.json"
    file.write_text(json.dumps({"points": [BASELINE, POINT]}), "utf-8")
    ran = muster("sim", "validate", "--points", file, "--leave-one-out", "--leave-largest-out")
    assert ran.code == 2
    assert "two questions" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("collective", "--gpus", "1"), "needs at least two GPUs: give --gpus 2 or more"),
        (("collective", "--link", "pcie9"), "no intra-node link 'pcie9'"),
        (("collective", "--size", "-5"), "'-5' is not a size"),
        (("step", "--gpus", "16", "--nodes", "2", "--net=-5GbE"), "no network '-5GbE'"),
        (("step", "--gpus", "3", "--nodes", "8"), "3 GPUs cannot fill 8 nodes"),
        (("step", "--gpus", "0"), "0 is not in the range"),
        (("step", "--no-prefetch"), "--no-prefetch is about --real-data"),
    ],
)
def test_nonsense_is_answered_by_a_sentence(
    muster: Muster, words: tuple[str, ...], message: str
) -> None:
    ran = muster("sim", *words)
    assert ran.code == 2
    assert message in ran.err


def test_an_empty_network_between_nodes_is_no_infinite_one(muster: Muster) -> None:
    where = ("--gpus", "16", "--nodes", "2", "--json")
    for command in ("step", "collective"):
        ran = muster("sim", command, *where, "--net", "")
        assert "100 Gb/s RDMA is taken" in ran.err
        assert ran.json == muster("sim", command, *where).json


def test_points_of_the_wrong_types_fail_alone(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "points.json"
    odd = {"id": "odd", "kind": "llm_iter", "system": ["l"], "series": {}, "model": [1], "gpu": 7}
    vast = POINT | {"id": "vast", "n_gpus": 1e30, "n_nodes": 1e30}
    file.write_text(json.dumps({"points": [BASELINE, POINT, odd, vast, 7]}), "utf-8")
    for way in ((), ("--leave-one-out",), ("--leave-largest-out",), ("--fit",)):
        ran = muster("sim", "validate", "--points", file, "--summary", *way)
        assert ran.code == 0, ran.err
    shown = muster("sim", "validate", "--points", file)
    assert "odd" in shown.err + shown.out


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not JSON: line 1, column 2"), (b"\xff\xfe\x8b", "is neither UTF-8 text")],
)
def test_a_file_that_is_not_json_is_refused(
    muster: Muster, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "points.json"
    file.write_bytes(content)
    ran = muster("sim", "validate", "--points", file)
    assert ran.code == 2
    assert message in ran.err
    cluster = muster("sim", "cluster", file)
    assert cluster.code == 2
    assert "codec" not in cluster.err


def test_rates_that_only_look_like_gavel_s_are_refused(muster: Muster, tmp_path: Path) -> None:
    for content in (
        '{"v100": 3}',
        '{"v100": {"(1,": {}}}',
        '{"v100": {}, "abacus": {"(1, 2)": {}}}',
    ):
        file = tmp_path / "rates.json"
        file.write_text(content)
        ran = muster("sim", "validate", "--points", file)
        assert ran.code == 2
        assert "as Gavel's rates do, but not their form" in ran.err


def test_what_is_no_point_is_named_however_the_file_is_asked(
    muster: Muster, tmp_path: Path
) -> None:
    file = tmp_path / "points.json"
    odd = {"id": "odd", "kind": "allreduce", "gpu": "V100", "n_gpus": 8, "intra": "nvlink2"}
    file.write_text(json.dumps([7, odd | {"bytes": 0, "time_us": 9}]))
    for way in ((), ("--leave-largest-out",), ("--leave-one-out",), ("--fit",)):
        ran = muster("sim", "validate", "--points", file, "--summary", *way)
        assert ran.code == 0
        assert "[0] (no system) was not predicted: is not a mapping" in ran.out
        assert ("odd (no system) was not predicted: bytes must be above 0" in ran.out) == (
            way != ("--leave-largest-out",)
        )


LLM = ("--model", "gpt_7.5b", "--gpu", "A100-80", "--gpus", "16", "--nodes", "2", "--tensor", "8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*LLM, "--scheme", "ps"), "--scheme: is not used: gpt_7.5b"),
        ((*LLM, "--compression", "fp16"), "--compression: is not used"),
        ((*LLM, "--accumulate", "2"), "--accumulate: is not used"),
        ((*LLM, "--servers", "2"), "--servers: is not used"),
        ((*LLM, "--real-data"), "--real-data: is not used"),
        ((*LLM, "--no-overlap"), "--overlap: is not used"),
        ((*LLM, "--precision", "fp32"), "--precision: of gpt_7.5b must be one of fp16"),
        (("--scheme", "ring", "--servers", "3"), "--servers: none of these schemes"),
        (("--global-batch", "512"), "--global-batch: resnet50 trains data-parallel"),
        (("--scheme", "ps", "--no-overlap"), "--overlap: nothing is known"),
        (("--scheme", "ps", "--compression", "1bit"), "--scheme: has no meaning"),
        (("--net", "25GbE"), "--net connects nodes"),
        (("--transport", "rdma"), "--transport connects nodes"),
        (("--gpus", "2", "--nodes", "2", "--link", "pcie3"), "--link is between the GPUs"),
        (("--gpus", "16", "--nodes", "2", "--net", "infinband 240Gb"), "'infinband' is not known"),
        (("--gpus", "16", "--nodes", "2", "--net", "turbo 100GbE"), "'turbo' is not known"),
        (("--gpu", "A100-16GB"), "'16gb' is not known"),
        (("--gpu", "Banana V100"), "'banana' is not known"),
        (("--model", "gpt_175b"), "gpt_175b (3d) needs at least 2,"),
        (("--batch", "100000"), "resnet50 (ring) needs at least"),
    ],
)
def test_what_a_step_does_not_use_or_know_is_refused(
    muster: Muster, options: tuple[str, ...], message: str
) -> None:
    ran = muster("sim", "step", *options)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    "gpu", ["NVIDIA H100 80GB HBM3", "Tesla V100-PCIE-16GB", "GeForce RTX 2080 Ti", "K40m", "A800"]
)
def test_usual_names_of_gpus_are_taken(muster: Muster, gpu: str) -> None:
    assert muster("sim", "step", "--gpu", gpu, "--gpus", "1").code == 0


def test_the_precision_that_is_shown_is_the_one_that_was_computed(muster: Muster) -> None:
    assert muster("sim", "step", *LLM, "--net", "8x200Gb HDR IB").out.startswith("gpt_7.5b, fp16,")
    assert muster("sim", "step").out.startswith("resnet50, fp32,")
