"""The simulator's physics: what a change among running gangs costs, and formulas by the thousand.

Baselines: filling all links again from scratch at every change, which is what one would write
first; and the same collectives one call each.
"""

import random
from time import process_time
from typing import Any

import numpy as np

from bench.rounds import Seconds, result
from simulator.collectives import nccl
from simulator.machine.trainer import Trainer
from simulator.network.max_min_fair import Flow, MaxMinFair
from simulator.network.topology import ClusterModel, parse_cluster
from simulator.training.pace import Recipe

NODES, GANGS = 1000, 200
COLLECTIVES = 10_000
# The goals, in microseconds of CPU for one change, and in milliseconds for the call.
CHANGE_US_MAX = 50.0
CALL_MS_MAX = 10.0


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = 3 if quick else 7
    return [*_changes(rounds), _collectives(rounds)]


def _cluster() -> ClusterModel:
    rack = {"nodes": 20, "gpus": 8, "gpu_type": "V100", "net": "100Gb IB"}
    racks = [rack | {"name": f"r{i}"} for i in range(NODES // 20)]
    return parse_cluster({"racks": racks, "fabric": {"oversubscription": 3}})


def _gangs(seed: int) -> list[tuple[Recipe, dict[str, int]]]:
    """Gangs of 2 to 8 nodes, which share nodes and cross leaves."""
    dice = random.Random(seed)
    recipes = [Recipe(m, precision="fp16") for m in ("resnet50", "vgg16", "bert_large")]
    made = []
    for _ in range(GANGS):
        first, count = dice.randrange(NODES), dice.randrange(2, 9)
        nodes = [(first + i) % NODES for i in range(count)]
        made.append((dice.choice(recipes), {f"r{n // 20}-{n % 20}": 4 for n in nodes}))
    return made


def _filled(seed: int) -> tuple[Trainer, list[tuple[Recipe, dict[str, int]]]]:
    trainer, gangs = Trainer(_cluster()), _gangs(seed)
    for i, (recipe, gpus) in enumerate(gangs):
        trainer.begin(i, recipe, gpus, steps=1e6, now=0.0)
    return trainer, gangs


def _changes(rounds: int) -> list[dict[str, Any]]:
    seconds: dict[str, Seconds] = {
        name: {"ours": [], "from scratch": []} for name in ("start", "stop", "rate change")
    }
    turns = 200
    for number in range(rounds):
        trainer, gangs = _filled(number)
        took = dict.fromkeys(seconds, 0.0)
        for turn in range(turns):
            key = turn % GANGS
            recipe, gpus = gangs[key]
            began = process_time()
            trainer.end(key, float(turn))
            stopped = process_time()
            trainer.begin(key, recipe, gpus, steps=1e6, now=float(turn))
            started = process_time()
            link = f"nic/{next(iter(gpus))}"
            trainer.fluid.set_capacity(link, 12e9 if turn % 2 else 6e9)
            changed = process_time()
            took["stop"] += stopped - began
            took["start"] += started - stopped
            took["rate change"] += changed - started
        scratch = _from_scratch(trainer)
        for name, one in took.items():
            seconds[name]["ours"].append(one)
            seconds[name]["from scratch"].append(scratch * turns)
    lines = []
    for name, taken in seconds.items():
        line = result(
            f"gang {name}, {NODES} nodes, {GANGS} gangs",
            taken,
            "ours",
            "from scratch",
            events=turns,
        )
        each_us = 1e6 / line["value"]
        line |= {"unit": "changes/s", "target": 1.0, "note": f"{each_us:.1f} us each"}
        lines.append(line | {"note": f"{line['note']}, goal {CHANGE_US_MAX:g} us"})
    return lines


def _from_scratch(trainer: Trainer) -> float:
    """Seconds to compute the rates of all flows again."""
    flows: dict[Any, Flow] = dict(trainer.fluid._flows)
    capacity = dict(trainer.fluid._capacity)
    began = process_time()
    fluid = MaxMinFair(capacity)
    for key, flow in flows.items():
        fluid.add(key, flow)
    return process_time() - began


def _collectives(rounds: int) -> dict[str, Any]:
    dice = np.random.default_rng(1)
    nodes = dice.integers(1, 65, COLLECTIVES)
    sizes = 10.0 ** dice.uniform(3, 10, COLLECTIVES)
    costs = nccl.Costs(25.0, 1.2)
    generation = dice.integers(0, 4, COLLECTIVES)

    def who(chosen: slice) -> nccl.Ranks:
        return nccl.ranks_of(
            ranks=nodes[chosen] * 8,
            nodes=nodes[chosen],
            intra_gbs=230.0,
            net_gbs=24.0,
            generation=generation[chosen],
        )

    everyone = who(slice(None))
    seconds: Seconds = {"one call": [], "one by one": []}
    single = 300
    for _ in range(rounds):
        began = process_time()
        nccl.all_reduce(sizes, everyone, costs)
        seconds["one call"].append(process_time() - began)
        began = process_time()
        for i in range(single):
            nccl.all_reduce(sizes[i : i + 1], who(slice(i, i + 1)), costs)
        seconds["one by one"].append((process_time() - began) * COLLECTIVES / single)
    line = result(
        f"{COLLECTIVES:,} collectives in one call",
        seconds,
        "one call",
        "one by one",
        events=COLLECTIVES,
        target=20.0,
    )
    took_ms = 1e3 * COLLECTIVES / line["value"]
    return line | {"unit": "collectives/s", "note": f"{took_ms:.1f} ms, goal {CALL_MS_MAX:g} ms"}
