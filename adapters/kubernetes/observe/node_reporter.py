"""Reports about nodes to the control plane: what they have, and whether they are ready.

Changes are collected for a short time and then reported together. A node that is not ready is
reported lost after `lost_after_s`; a node that has the out-of-service taint or was deleted is
reported removed. Devices that are unhealthy or that other workloads use are reported as unusable.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from adapters.kubernetes.api.reflector import Change, Key
from adapters.kubernetes.observe import nodes
from adapters.kubernetes.observe.informers import JobInformers
from adapters.kubernetes.observe.labels import Document, labels_of, name_of
from adapters.kubernetes.reconcile.binding import held_devices
from adapters.kubernetes.reconcile.desired_pods import is_over
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import (
    Report,
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
)

# Changes within this time are reported together. Pods of other workloads without devices come and
# go all the time, and each report is an event in the log, so they are collected for longer.
SETTLE_S = 0.05
OTHERS_SETTLE_S = 2.0


class Use:
    """What pods use of a node: a number of devices, and amounts of the other resources."""

    __slots__ = ("amounts", "gpus")

    def __init__(self) -> None:
        self.gpus = 0
        self.amounts: dict[str, int] = {}

    def add(self, gpus: int, amounts: Mapping[str, int]) -> None:
        self.gpus += gpus
        for name, amount in amounts.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount


class NodeReporter:
    """Report changes of nodes through `report`, and all nodes on `survey`.

    `lost_after_s` is how long a node may be not ready before it counts as lost. Kubernetes itself
    waits before it marks a node as not ready, but a kubelet that restarts passes through that state
    within a second, and a gang must not be stopped for that. No gang is placed on the node
    meanwhile, because a node that is not ready has a taint. `levels` are the node labels that name
    the topology levels, outermost first.
    """

    def __init__(
        self,
        informers: Callable[[], JobInformers],
        report: Callable[[Report], None],
        *,
        lost_after_s: float,
        levels: Sequence[str] = (),
    ) -> None:
        self._informers = informers
        self._report = report
        self._lost_after_s = lost_after_s
        self._levels = levels
        # The loop time since which a node is not ready.
        self._unready: dict[str, float] = {}
        self._unusable: dict[str, list[int]] = {}
        # The last report about each node; None for a node that was reported lost or removed.
        self._reported: dict[str, NodeInfo | None] = {}
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Report nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ changes

    def on_node(self, change: Change) -> None:
        """Note a change of a node, unless only its heartbeat changed."""
        if change.before is None or change.now is None or _differs(change.before, change.now):
            self._note(change.key.name)

    def on_other(self, change: Change) -> None:
        """Note that a pod of another workload took or released resources of a node."""
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
        """Report the nodes that changed, and those that have been not ready for too long."""
        self._timer = None
        informers = self._informers()
        if not all(each.synced.is_set() for each in (informers.nodes, *informers.others)):
            self._look_in(SETTLE_S)
            return
        now = asyncio.get_running_loop().time()
        overdue = {name for name, since in self._unready.items() if self._is_lost(since, now)}
        names, self._changed = self._changed | overdue, set()
        held, used = self._held(), self._used(names)
        for name in sorted(names):
            self._report_node(name, held[name], used[name], now)
        waiting = [since for name, since in self._unready.items() if self._reported.get(name)]
        if waiting:
            self._look_in(max(SETTLE_S, min(waiting) + self._lost_after_s - now))

    def _report_node(self, name: str, held: set[int], used: Use, now: float) -> None:
        node = self._node(name)
        if node is None:
            self._unready.pop(name, None)
            self._unusable.pop(name, None)
            if self._reported.pop(name, ()) != ():
                self._report(ReportNodeRemoved(node=name))
            return
        info = self._info(node, held, used)
        if self._answers(node, now):
            if self._reported.get(name) != info:
                self._reported[name] = info
                self._report(ReportNode(node=info))
        elif nodes.is_out_of_service(node):
            self._reported[name] = None
            self._report(ReportNodeRemoved(node=name))
        elif self._reported.get(name, ()) is not None:
            if name not in self._reported:
                # The control plane must know a node before it is reported lost.
                self._report(ReportNode(node=info))
            self._reported[name] = None
            self._report(ReportNodeLost(node=name, detail=_silence(node)))

    def survey(self) -> None:
        """Report all nodes in one ReportCluster; call it after `JobInformers.see_nodes`."""
        now = asyncio.get_running_loop().time()
        items = sorted(self._informers().nodes.items.values(), key=name_of)
        held, used = self._held(), self._used({name_of(node) for node in items})
        up: list[NodeInfo] = []
        down: list[NodeInfo] = []
        for node in items:
            name = name_of(node)
            info, answers = self._info(node, held[name], used[name]), self._answers(node, now)
            self._reported[name] = info if answers else None
            if answers:
                up.append(info)
            elif not nodes.is_out_of_service(node):
                # A node out of service is left out of the report, and so counts as removed.
                down.append(info)
        self._report(ReportCluster(up=tuple(up), down=tuple(down)))

    # ------------------------------------------------------------------ one node

    def _node(self, name: str) -> Document | None:
        return self._informers().nodes.items.get(Key("", name))

    def _info(self, node: Document, held: set[int], used: Use) -> NodeInfo:
        name, count = name_of(node), nodes.sick(node) + used.gpus
        before = self._unusable.get(name, [])
        unusable = nodes.unusable(nodes.gpus(node), count, held, before)
        self._unusable[name] = unusable
        return nodes.info(node, unusable=unusable, levels=self._levels, others=used.amounts)

    def _answers(self, node: Document, now: float) -> bool:
        name = name_of(node)
        if nodes.is_ready(node):
            self._unready.pop(name, None)
            return True
        since = self._unready.setdefault(name, now)
        if nodes.is_out_of_service(node):
            return False
        # A node that has not been reported ready gets no grace period.
        return bool(self._reported.get(name)) and not self._is_lost(since, now)

    def _is_lost(self, since: float, now: float) -> bool:
        return now >= since + self._lost_after_s

    def _held(self) -> dict[str, set[int]]:
        """Return the device indices that Muster's own pods hold, by node."""
        devices = defaultdict[str, set[int]](set)
        for pod in self._informers().all_pods():
            node = (pod.get("spec") or {}).get("nodeName")
            if node and not is_over(pod):
                devices[node].update(held_devices(pod))
        return devices

    def _used(self, names: Collection[str]) -> dict[str, Use]:
        """Return what pods of other workloads use on the nodes `names`."""
        uses = {name: Use() for name in names}
        for reflector in self._informers().others:
            for pod in reflector.items.values():
                if (use := uses.get(pod["node"])) is not None:
                    use.add(pod["gpus"], pod["requests"])
        return uses


def _use(pod: Document) -> tuple[object, ...]:
    return pod["node"], pod["gpus"], pod["requests"]


def _differs(before: Document, now: Document) -> bool:
    """Return whether more than a heartbeat differs."""
    parts = ("spec", "status")
    return labels_of(before) != labels_of(now) or any(
        before.get(part) != now.get(part) for part in parts
    )


def _silence(node: Document) -> str:
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            words = [str(each.get(word) or "") for word in ("reason", "message")]
            return ": ".join(word for word in words if word)
    return ""
