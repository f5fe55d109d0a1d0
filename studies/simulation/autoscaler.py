"""An autoscaler: it rents nodes when jobs wait, and returns nodes that are idle.

A node that is not rented is cordoned. The control plane then places nothing on it, but still counts
it as a node that can be had: a gang that fits only with all nodes is not refused.
"""

import math
from collections.abc import Generator
from typing import Any

import simpy

from controlplane.engine import Engine
from controlplane.model.commands import CordonNode, UncordonNode
from controlplane.queries.queries import gpus_wanted
from simulator.kernel.virtual_time import VirtualTime
from studies.whatif.scenario_parts import Autoscale

LOOK_EVERY_S = 60.0


class Autoscaler:
    """Cordon all nodes beyond `plan.nodes_min`, and scale every `LOOK_EVERY_S` seconds."""

    def __init__(self, env: VirtualTime, engine: Engine, plan: Autoscale) -> None:
        self._env = env
        self._engine = engine
        self._plan = plan
        names = list(engine.world.nodes)
        self._off = names[: plan.nodes_min - 1 if plan.nodes_min else None : -1]
        self._booting = 0
        self._idle_since: dict[str, float] = {}
        self._rented: dict[str, None] = dict.fromkeys(names[: plan.nodes_min])
        for name in self._off:
            engine.submit(CordonNode(node=name))
        env.process(self._watch())

    def _watch(self) -> Generator[simpy.Event, Any, None]:
        while True:
            yield self._env.timeout(LOOK_EVERY_S)
            self._rent()
            self._give_back()

    def _rent(self) -> None:
        """Rent the nodes that waiting jobs need beyond free GPUs and booting nodes."""
        world = self._engine.world
        waiting = gpus_wanted(world)
        if not waiting or not self._off:
            return
        size = max(1, world.nodes[self._off[-1]].info.gpus)
        short = waiting - world.devices.free.total - self._booting * size
        for _ in range(min(len(self._off), math.ceil(short / size))):
            name = self._off.pop()
            self._booting += 1
            boot = self._env.timeout(self._plan.boot_s, name)
            assert boot.callbacks is not None
            boot.callbacks.append(self._booted)

    def _booted(self, boot: simpy.Event) -> None:
        name = boot.value
        assert isinstance(name, str)
        self._booting -= 1
        self._rented[name] = None
        self._engine.submit(UncordonNode(node=name))

    def _give_back(self) -> None:
        world, now = self._engine.world, self._env.now
        waits = gpus_wanted(world) > 0
        for name in list(self._rented):
            if world.devices.jobs_by_node[name] or waits:
                self._idle_since.pop(name, None)
            elif now - self._idle_since.setdefault(name, now) >= self._plan.idle_s:
                if len(self._rented) <= self._plan.nodes_min:
                    return
                del self._rented[name], self._idle_since[name]
                self._off.append(name)
                self._engine.submit(CordonNode(node=name))
