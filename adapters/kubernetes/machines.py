"""Nodes as the control plane should hear of them: what they have, and whether they answer."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from adapters.kubernetes import nodes
from adapters.kubernetes.binding import held_devices
from adapters.kubernetes.eyes import Eyes
from adapters.kubernetes.marks import Document, labels_of, name_of
from adapters.kubernetes.reflector import Change, Key
from adapters.kubernetes.wishes import is_over
from controlplane.commands import (
    Report,
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
)
from controlplane.model import NodeInfo

# What changed within this time is told together. Other people's pods without devices come and go all
# the time, and each telling is an event in the log.
SETTLE_S = 0.05
OTHERS_SETTLE_S = 2.0


class Use:
    """What pods have of a node: so many devices, and so much of everything else."""

    __slots__ = ("amounts", "gpus")

    def __init__(self) -> None:
        self.gpus = 0
        self.amounts: dict[str, int] = {}

    def add(self, gpus: int, amounts: Mapping[str, int]) -> None:
        self.gpus += gpus
        for name, amount in amounts.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount


class Machines:
    """`lost_after_s` is how long a node may be not ready before it counts as lost.

    The cluster itself waits before it says so, but a kubelet that is started again passes through
    it in a second, and a gang that is stopped for that is stopped for nothing. Nothing new is placed
    there meanwhile, because such a node has a taint.
    """

    def __init__(
        self,
        eyes: Callable[[], Eyes],
        report: Callable[[Report], None],
        *,
        lost_after_s: float,
        levels: Sequence[str] = (),
    ) -> None:
        self._eyes = eyes
        self._report = report
        self._lost_after_s = lost_after_s
        self._levels = levels
        # Since when a node is not ready.
        self._unready: dict[str, float] = {}
        self._unusable: dict[str, list[int]] = {}
        # What was last told of each node; None of one that was told lost.
        self._told: dict[str, NodeInfo | None] = {}
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ what changes

    def on_node(self, change: Change) -> None:
        if change.before is None or change.now is None or _differs(change.before, change.now):
            self._note(change.key.name)

    def on_other(self, change: Change) -> None:
        """Somebody else's pod took devices, cores or the like of a node, or gave them back."""
        before, now = change.before, change.now
        if before is None or now is None or _use(before) != _use(now):
            has_devices = bool(change.document["gpus"])
            self._note(change.document["node"], SETTLE_S if has_devices else OTHERS_SETTLE_S)

    def _note(self, node: str, settle_s: float = SETTLE_S) -> None:
        self._changed.add(node)
        self._look_in(settle_s)

    def _look_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Tells what is news of the nodes that changed, or have been silent for too long."""
        self._timer = None
        eyes = self._eyes()
        if not all(each.synced.is_set() for each in (eyes.nodes, *eyes.others)):
            self._look_in(SETTLE_S)
            return
        now = asyncio.get_running_loop().time()
        overdue = {name for name, since in self._unready.items() if self._is_lost(since, now)}
        names, self._changed = self._changed | overdue, set()
        held, used = self._held(), self._used(names)
        for name in sorted(names):
            self._tell(name, held[name], used[name], now)
        waiting = [since for name, since in self._unready.items() if self._told.get(name)]
        if waiting:
            self._look_in(max(SETTLE_S, min(waiting) + self._lost_after_s - now))

    def _tell(self, name: str, held: set[int], used: Use, now: float) -> None:
        node = self._node(name)
        if node is None:
            self._unready.pop(name, None)
            self._unusable.pop(name, None)
            if self._told.pop(name, ()) != ():
                self._report(ReportNodeRemoved(node=name))
            return
        found = self._info(node, held, used)
        if self._answers(node, now):
            if self._told.get(name) != found:
                self._told[name] = found
                self._report(ReportNode(node=found))
        elif nodes.is_out_of_service(node):
            self._told[name] = None
            self._report(ReportNodeRemoved(node=name))
        elif self._told.get(name, ()) is not None:
            if name not in self._told:
                # A node is introduced before it is told lost.
                self._report(ReportNode(node=found))
            self._told[name] = None
            self._report(ReportNodeLost(node=name, message=_silence(node)))

    def survey(self) -> None:
        """Tells every node there is."""
        now = asyncio.get_running_loop().time()
        items = sorted(self._eyes().nodes.items.values(), key=name_of)
        held, used = self._held(), self._used({name_of(node) for node in items})
        up: list[NodeInfo] = []
        down: list[NodeInfo] = []
        for node in items:
            name = name_of(node)
            found, answers = self._info(node, held[name], used[name]), self._answers(node, now)
            self._told[name] = found if answers else None
            if answers:
                up.append(found)
            elif not nodes.is_out_of_service(node):
                # One that is out of service is not listed, and so counts as removed.
                down.append(found)
        self._report(ReportCluster(up=tuple(up), down=tuple(down)))

    # ------------------------------------------------------------------ one node

    def _node(self, name: str) -> Document | None:
        return self._eyes().nodes.items.get(Key("", name))

    def _info(self, node: Document, held: set[int], used: Use) -> NodeInfo:
        name, count = name_of(node), nodes.sick(node) + used.gpus
        before = self._unusable.get(name, [])
        found = nodes.unusable(nodes.gpus(node), count, held, before)
        self._unusable[name] = found
        return nodes.info(node, unusable=found, levels=self._levels, others=used.amounts)

    def _answers(self, node: Document, now: float) -> bool:
        name = name_of(node)
        if nodes.is_ready(node):
            self._unready.pop(name, None)
            return True
        since = self._unready.setdefault(name, now)
        if nodes.is_out_of_service(node):
            return False
        # One that has never been seen ready is not waited for.
        return bool(self._told.get(name)) and not self._is_lost(since, now)

    def _is_lost(self, since: float, now: float) -> bool:
        return now >= since + self._lost_after_s

    def _held(self) -> dict[str, set[int]]:
        """The devices that pods of ours hold, by node."""
        found = defaultdict[str, set[int]](set)
        for pod in self._eyes().all_pods():
            node = (pod.get("spec") or {}).get("nodeName")
            if node and not is_over(pod):
                found[node].update(held_devices(pod))
        return found

    def _used(self, names: Collection[str]) -> dict[str, Use]:
        """What other people's pods have of these nodes."""
        found = {name: Use() for name in names}
        for reflector in self._eyes().others:
            for pod in reflector.items.values():
                if (use := found.get(pod["node"])) is not None:
                    use.add(pod["gpus"], pod["requests"])
        return found


def _use(pod: Document) -> tuple[object, ...]:
    return pod["node"], pod["gpus"], pod["requests"]


def _differs(before: Document, now: Document) -> bool:
    """Whether there is more to it than a heartbeat."""
    parts = ("spec", "status")
    return labels_of(before) != labels_of(now) or any(
        before.get(part) != now.get(part) for part in parts
    )


def _silence(node: Document) -> str:
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            words = [str(each.get(word) or "") for word in ("reason", "message")]
            return ": ".join(word for word in words if word) or "it is not ready"
    return "it is not ready"
