"""Gangs that train: neighbours, faults, checkpoints, and the step-by-step model against the fluid one."""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.faults import FaultKind
from simulator.machine.trainer import Trainer
from simulator.network.topology import ClusterModel, parse_cluster
from simulator.training.checkpoints import Checkpointing
from simulator.training.exchange import Scheme
from simulator.training.recipes import Recipe
from tests.simulator.stepwise import Job, finish_times


def _cluster(oversubscription: float = 1.0, net: str = "25GbE") -> ClusterModel:
    rack = {"nodes": 4, "gpus": 4, "gpu_type": "P100", "link": "pcie3", "net": net}
    return parse_cluster(
        {
            "racks": [rack | {"name": "a"}, rack | {"name": "b"}],
            "fabric": {"oversubscription": oversubscription},
        }
    )


VGG = Recipe("vgg16")
RESNET = Recipe("resnet50")
FAT = Recipe("vgg16", compute_s=0.05)


def test_a_gang_ends_when_its_steps_are_done() -> None:
    trainer = Trainer(_cluster())
    assert trainer.begin("x", RESNET, {"a-0": 4}, steps=1000, now=5.0) == ["x"]
    assert trainer.ends_at("x") == pytest.approx(5.0 + 1000 * trainer.step_s("x"))
    assert trainer.done("x", 5.0 + 10 * trainer.step_s("x")) == pytest.approx(10)


def test_a_spread_gang_is_slower_than_one_in_a_box() -> None:
    trainer = Trainer(_cluster())
    trainer.begin("together", VGG, {"a-0": 4}, steps=100, now=0.0)
    trainer.begin("spread", VGG, {"a-1": 1, "a-2": 1, "a-3": 1, "b-0": 1}, steps=100, now=0.0)
    assert trainer.step_s("spread") > 1.02 * trainer.step_s("together")


def test_neighbours_on_a_nic_slow_each_other_and_recover() -> None:
    trainer = Trainer(_cluster())
    trainer.begin("x", FAT, {"a-0": 2, "a-1": 2}, steps=1000, now=0.0)
    alone = trainer.step_s("x")
    assert trainer.begin("y", FAT, {"a-0": 2, "a-1": 2}, steps=1000, now=10.0) == ["y", "x"]
    assert trainer.step_s("x") > 1.2 * alone
    # What was done before the neighbour came was done at full pace.
    assert trainer.done("x", 10.0) == pytest.approx(10.0 / alone)
    _, moved = trainer.end("y", 20.0)
    assert moved == ["x"]
    assert trainer.step_s("x") == pytest.approx(alone)


def test_gangs_that_share_no_link_do_not_notice_each_other() -> None:
    trainer = Trainer(_cluster())
    trainer.begin("x", FAT, {"a-0": 4, "a-1": 4}, steps=100, now=0.0)
    assert trainer.begin("y", FAT, {"a-2": 4, "a-3": 4}, steps=100, now=1.0) == ["y"]


def test_an_oversubscribed_spine_slows_gangs_that_cross_it() -> None:
    wide, narrow = Trainer(_cluster(1.0)), Trainer(_cluster(16.0))
    for trainer in (wide, narrow):
        trainer.begin("in", FAT, {"a-0": 4, "a-1": 4}, steps=9, now=0.0)
        trainer.begin("across", FAT, {"a-2": 4, "b-0": 4}, steps=9, now=0.0)
    assert narrow.step_s("in") == pytest.approx(wide.step_s("in"))
    assert narrow.step_s("across") > 1.5 * wide.step_s("across")


def test_where_everyone_sends_to_everyone_more_crosses_the_spine() -> None:
    nodes = {f"{rack}-{n}": 1 for rack in "ab" for n in range(4)}
    paces = []
    for scheme in (Scheme.ALL_REDUCE, Scheme.PS_SPLIT):
        trainer = Trainer(_cluster(20.0, net="25GbE"))
        trainer.begin("x", Recipe("vgg16", compute_s=0.05, scheme=scheme), nodes, steps=9, now=0)
        paces.append(trainer.fluid.share("x"))
    assert paces[1] < paces[0]


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        (FaultKind.SLOW, RESNET),
        (FaultKind.LINK, FAT),
        (FaultKind.STORAGE, Recipe("alexnet", real_data=True)),
    ],
)
def test_a_node_that_is_not_well_slows_its_gang_until_it_is(
    kind: FaultKind, recipe: Recipe
) -> None:
    trainer = Trainer(_cluster())
    trainer.begin("x", recipe, {"a-0": 4, "a-1": 4}, steps=1000, now=0.0)
    well = trainer.step_s("x")
    assert trainer.degrade("a-1", kind, 0.25, 5.0) == ["x"]
    assert trainer.step_s("x") > 1.1 * well
    assert trainer.degrade("b-0", kind, 0.25, 5.0) == []
    assert trainer.degrade("a-1", kind, 1.0, 6.0) == ["x"]
    assert trainer.step_s("x") == pytest.approx(well)


def test_a_checkpoint_keeps_whole_intervals_and_notice_keeps_all() -> None:
    recipe = Recipe("resnet50", checkpoint=Checkpointing(100.0, 5.0))
    for noticed_s, kept in ((0.0, 2), (120.0, None)):
        trainer = Trainer(_cluster())
        trainer.begin("x", recipe, {"a-0": 4}, steps=1e6, now=0.0)
        step_s = trainer.step_s("x")
        progress, _ = trainer.end("x", 250.0, noticed_s=noticed_s)
        expected = progress.done if kept is None else kept * 105.0 / step_s
        assert progress.kept == pytest.approx(expected)
        assert progress.lost_s == pytest.approx((progress.done - progress.kept) * step_s)


def test_without_checkpoints_all_is_lost_unless_it_was_done() -> None:
    trainer = Trainer(_cluster())
    trainer.begin("x", RESNET, {"a-0": 4}, steps=10, now=0.0)
    trainer.begin("y", RESNET, {"a-1": 4}, steps=10, now=0.0)
    assert trainer.end("x", trainer.step_s("x") * 5)[0].kept == 0.0
    assert trainer.end("y", trainer.ends_at("y"))[0].kept == 10


def test_unknown_hardware_has_no_place() -> None:
    cluster = parse_cluster({"racks": [{"name": "a", "gpu_type": "Z9000"}]})
    assert Trainer(cluster).place({"a-0": 4}) is None
    assert Trainer(_cluster()).place({"a-0": 0}) is None


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(1, 500)), max_size=12))
def test_work_is_neither_lost_nor_made_by_changes_of_pace(
    changes: list[tuple[int, int, float]],
) -> None:
    """Steps done are the integral of the pace, whatever happens in between."""
    names = [f"{rack}-{n}" for rack in "ab" for n in range(4)]
    trainer = Trainer(_cluster())
    trainer.begin("x", FAT, {"a-0": 1, "b-0": 1}, steps=1e9, now=0.0)
    now, expected = 0.0, 0.0
    for i, (one, two, wait) in enumerate(changes):
        expected += wait / trainer.step_s("x")
        now += wait
        if one != two:
            trainer.begin(i, FAT, {names[one]: 1, names[two]: 1}, steps=1e9, now=now)
        else:
            trainer.degrade(names[one], FaultKind.LINK, 0.5, now)
        assert trainer.done("x", now) == pytest.approx(expected, rel=1e-9)


def _fluid_times(cluster: ClusterModel, jobs: list[Job]) -> dict[object, float]:
    trainer = Trainer(cluster)
    done: dict[object, float] = {}
    waiting = sorted(jobs, key=lambda job: job.at_s, reverse=True)
    going: set[object] = set()
    while waiting or going:
        end = min(((trainer.ends_at(k), str(k), k) for k in going), default=None)
        if waiting and (end is None or waiting[-1].at_s <= end[0]):
            job = waiting.pop()
            trainer.begin(job.key, job.recipe, job.gpus, steps=job.steps, now=job.at_s)
            going.add(job.key)
            continue
        assert end is not None
        at_s, _, key = end
        done[key] = at_s
        trainer.end(key, at_s)
        going.remove(key)
    return done


def test_step_by_step_agrees_with_the_fluid_model_within_a_percent() -> None:
    often = Checkpointing(60.0, 4.0)
    jobs = [
        Job("small", Recipe("resnet50", evaluate_steps=100, evaluate_s=3.0), {"a-0": 2}, 3000),
        Job("wide", Recipe("vgg16", checkpoint=often), {"a-1": 4, "a-2": 4, "b-1": 4}, 1500),
        Job("late", FAT, {"a-3": 4, "b-2": 4}, 4000, at_s=100.0),
        Job("near", FAT, {"b-3": 4, "b-0": 4}, 4000, at_s=200.0),
        Job("fed", Recipe("alexnet", real_data=True, batch=64), {"a-0": 2}, 2000),
        Job("one", Recipe("gpt2_medium", compute_s=0.3), {"b-1": 1}, 900),
    ]
    cluster = _cluster(2.0)
    fluid = _fluid_times(cluster, jobs)
    steps = finish_times(cluster, jobs, seed=1)
    for job in jobs:
        assert steps[job.key] - job.at_s == pytest.approx(fluid[job.key] - job.at_s, rel=0.01)


def test_it_agrees_under_contention_too() -> None:
    cluster = _cluster()
    jobs = [Job(i, FAT, {"a-0": 1, "a-1": 1}, 1500 + 400 * i, at_s=30.0 * i) for i in range(3)]
    fluid, steps = _fluid_times(cluster, jobs), finish_times(cluster, jobs, seed=2)
    assert all(a < b for a, b in pairwise(sorted(fluid.values())))
    for job in jobs:
        assert steps[job.key] == pytest.approx(fluid[job.key], rel=0.01)


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "from tests.simulator.test_trainer import *; from tests.simulator.test_trainer import _cluster;"
        "jobs=[Job(i, FAT, {f'a-{i}': 2, f'b-{i}': 2}, 200) for i in range(3)];"
        "print(finish_times(_cluster(4.0), jobs, seed=3))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
