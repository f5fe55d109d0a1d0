"""The same training, step by step: for small studies, and to check the fluid model against.

Every step draws how long each rank takes, waits for the slowest, and writes checkpoints and
evaluates when their time has come. Bandwidth is shared as in the fluid model, and shares change
only at the end of a step.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from simulator.hardware.constants import FITTED, Constants
from simulator.machine.trainer import RINGS, Trainer
from simulator.network.links import ClusterLinks
from simulator.network.max_min_fair import Flow, Key, MaxMinFair
from simulator.network.topology import ClusterModel
from simulator.training.pace import Pace, pace
from simulator.training.recipes import Recipe
from simulator.training.step import step
from simulator.training.stragglers import SIGMA


class Job(NamedTuple):
    key: Key
    recipe: Recipe
    gpus: Mapping[str, int]
    steps: int
    at_s: float = 0.0


class _Going:
    def __init__(self, job: Job, how: Pace, dice: np.random.Generator) -> None:
        self.job = job
        self.pace = how
        self.dice = dice
        self.now = job.at_s
        self.left = job.steps
        self.worked_s = 0.0
        self.count = 0

    def lag(self, ranks: int, nodes: int, sigma: float) -> float:
        """How much longer the slowest took this time."""
        if not self.pace.lag or ranks <= 1:
            return 0.0
        late = self.dice.standard_normal(ranks) / sqrt(self.pace.micro_batches)
        if nodes > 1:
            of_node = np.arange(ranks) * nodes // ranks
            late += self.dice.standard_normal(nodes)[of_node]
        return sigma * float(late.max())


def finish_times(
    cluster: ClusterModel, jobs: Sequence[Job], seed: int, constants: Constants = FITTED
) -> dict[Key, float]:
    """When each job is done."""
    trainer = Trainer(cluster, constants)
    links = ClusterLinks(cluster)
    fluid = MaxMinFair(links.capacity)
    going: dict[Key, _Going] = {}
    waiting = sorted(jobs, key=lambda job: job.at_s, reverse=True)
    done: dict[Key, float] = {}
    while going or waiting:
        first = min(going.values(), key=lambda g: g.now, default=None)
        if waiting and (first is None or waiting[-1].at_s <= first.now):
            job = waiting.pop()
            place = trainer.place(job.gpus)
            assert place is not None, f"{job.key} trains on unknown hardware"
            how = pace(job.recipe, place, constants)
            dice = np.random.default_rng([seed, len(done) + len(going)])
            going[job.key] = _Going(job, how, dice)
            nodes = tuple(name for name, count in job.gpus.items() if count > 0)
            size = how.plan.node_bytes
            loads = links.loads(nodes, ring=job.recipe.scheme in RINGS)
            fluid.add(job.key, Flow(size / how.step_s() if loads else 0.0, loads))
            continue
        assert first is not None
        _one_step(first, fluid)
        if first.left == 0:
            done[first.job.key] = first.now
            del going[first.job.key]
            fluid.remove(first.job.key)
    return done


def _one_step(going: _Going, fluid: MaxMinFair) -> None:
    how, recipe = going.pace, going.job.recipe
    ranks = sum(going.job.gpus.values())
    nodes = sum(1 for count in going.job.gpus.values() if count > 0)
    lag = going.lag(ranks, nodes, SIGMA)
    taken = step(
        how.compute_s,
        how.plan,
        lag,
        micro_batches=how.micro_batches,
        input_s=how.input_s,
        hand_s=how.hand_s,
    ).total_s
    rate = fluid.rate(going.job.key)
    if rate > 0.0:
        taken = max(taken, how.plan.node_bytes / rate) if fluid.share(going.job.key) < 1 else taken
    going.now += taken
    going.worked_s += taken
    going.left -= 1
    going.count += 1
    if recipe.evaluate_steps and going.count % recipe.evaluate_steps == 0:
        going.now += recipe.evaluate_s
        going.worked_s += recipe.evaluate_s
    kept = recipe.checkpoint
    if kept is not None and kept.interval_s > 0.0 and going.worked_s >= kept.interval_s:
        going.worked_s -= kept.interval_s
        going.now += kept.write_s
