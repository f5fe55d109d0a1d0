"""Nodes that pretend to run pods: they start, write, end as scripted, and are deleted.

A kubelet that is dead does none of that, as a real one: its pods stay as they are.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from controlplane.model.quantities import NOTHING, parse
from controlplane.model.resources import pod_requests
from tests.fake_kubernetes.store import NODES, PODS, Happening, Store

# The labels that identify the run and the rank of a pod.
RUN = ("job-id", "attempt", "rank", "incarnation")


class Fate(NamedTuple):
    """What becomes of a pod's containers. Without `after_s` they run until they are stopped."""

    after_s: float | None = None
    code: int = 0
    reason: str = ""
    lines: tuple[str, ...] = ()
    # Waits in this state and never starts, as with a wrong image.
    stuck: str = ""


def runs_for_ever(pod: dict[str, Any]) -> Fate:
    return Fate()


class Kubelets:
    """All kubelets. `fate` decides what happens to a pod; times are real and so should be short."""

    def __init__(
        self,
        store: Store,
        *,
        fate: Callable[[dict[str, Any]], Fate] = runs_for_ever,
        start_s: float = 0.005,
        stop_s: float = 0.005,
    ) -> None:
        self._store = store
        self.fate = fate
        self.start_s = start_s
        self.stop_s = stop_s
        self.dead: set[str] = set()
        # What was ever started, as (uid, node): each pod at most once.
        self.started: list[tuple[str, str]] = []
        # What a node had too few cores for.
        self.refused: list[str] = []
        self.lines: dict[str, list[str]] = {}
        self.marks: dict[str, tuple[str, ...]] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        store.on_change = self._hear

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def add_node(self, name: str, gpus: int = 8, **labels: str) -> None:
        self._store.create(
            NODES,
            "",
            {
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
                "spec": {},
                "status": {
                    "capacity": {"nvidia.com/gpu": str(gpus), "cpu": "64"},
                    "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "64"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def kill(self, node: str) -> None:
        """The kubelet dies; the node controller notices at once."""
        self.dead.add(node)
        self._condition(node, "Unknown")

    def revive(self, node: str) -> None:
        self.dead.discard(node)
        self._condition(node, "True")
        for pod in self._store.all(PODS):
            if pod["spec"].get("nodeName") == node:
                self._look(pod)

    def end(self, name: str, code: int, namespace: str = "default") -> None:
        """The containers of a running pod end now."""
        self._ended(self._store.get(PODS, namespace, name), Fate(code=code), "")

    def has_ended(self, uid: str) -> bool:
        pods = self._store.all(PODS)
        phase = next((p["status"].get("phase") for p in pods if p["metadata"]["uid"] == uid), "")
        return phase not in ("Pending", "Running")

    def _condition(self, node: str, status: str) -> None:
        patch = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        self._store.merge(NODES, "", node, patch)

    # ------------------------------------------------------------------ one pod

    def _hear(self, happening: Happening) -> None:
        if happening.resource == PODS and happening.type != "DELETED":
            self._look(happening.document)

    def _look(self, pod: dict[str, Any]) -> None:
        node = pod["spec"].get("nodeName")
        if not node or node in self.dead:
            return
        phase = pod["status"].get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            self._later(self.stop_s, self._gone, pod)
        elif phase == "Running" and pod["spec"].get("activeDeadlineSeconds"):
            self._later(self.stop_s, self._ended, pod, Fate(code=143), "DeadlineExceeded")
        elif phase == "Pending" and not pod["status"].get("containerStatuses"):
            self._later(self.start_s, self._start, pod)

    def _later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, lambda: act(*arguments))
        self._timers.add(timer)

    def _now(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """The pod as it is now; None if it is another one, gone, or its node is dead."""
        metadata = pod["metadata"]
        current = self._store.objects.get(PODS, {}).get((metadata["namespace"], metadata["name"]))
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return None
        return None if current["spec"].get("nodeName") in self.dead else current

    def _start(self, pod: dict[str, Any]) -> None:
        now = self._now(pod)
        if now is None or now["status"].get("containerStatuses"):
            return
        if now["metadata"].get("deletionTimestamp"):
            return
        if not self._has_cores(now):
            self._refuse(now, "OutOfcpu")
            return
        fate, uid = self.fate(now), now["metadata"]["uid"]
        if fate.stuck:
            self._status(now, "Pending", {"waiting": {"reason": fate.stuck, "message": "no"}})
            return
        assert all(uid != started for started, _ in self.started), f"{uid} was started twice"
        self.started.append((uid, now["spec"]["nodeName"]))
        labels = now["metadata"].get("labels") or {}
        self.marks[uid] = tuple(labels.get(f"muster.dev/{each}", "") for each in RUN)
        self.lines[uid] = list(fate.lines)
        self._status(now, "Running", {"running": {"startedAt": "2026-01-01T00:00:01Z"}})
        if fate.after_s is not None:
            self._later(fate.after_s, self._ended, now, fate, fate.reason)

    def _has_cores(self, pod: dict[str, Any]) -> bool:
        """As a real kubelet counts: what runs there, and this one."""
        name = pod["spec"]["nodeName"]
        there = [
            other
            for other in self._store.all(PODS)
            if other["spec"].get("nodeName") == name
            and other["status"].get("phase") not in ("Succeeded", "Failed")
            and other["status"].get("containerStatuses")
        ]
        node = self._store.objects[NODES].get(("", name))
        if node is None:
            return True
        asked = [pod_requests(each).get("cpu", NOTHING).amount for each in (*there, pod)]
        most = parse(node["status"]["allocatable"].get("cpu", "1000"))
        return most is None or sum(asked) <= most.amount

    def _refuse(self, pod: dict[str, Any], reason: str) -> None:
        self.refused.append(pod["metadata"]["uid"])
        metadata, status = pod["metadata"], {"phase": "Failed", "reason": reason}
        self._store.merge(PODS, metadata["namespace"], metadata["name"], {"status": status})

    def _ended(self, pod: dict[str, Any], fate: Fate, reason: str) -> None:
        now = self._now(pod)
        if now is None or now["status"].get("phase") != "Running":
            return
        ended = {"exitCode": fate.code, "reason": reason or ("Error" if fate.code else "Completed")}
        why = {"reason": reason} if reason == "DeadlineExceeded" else {}
        self._status(now, "Failed" if fate.code else "Succeeded", {"terminated": ended}, **why)

    def _gone(self, pod: dict[str, Any]) -> None:
        now = self._now(pod)
        if now is not None:
            self._store.remove(PODS, now["metadata"]["namespace"], now["metadata"]["name"])

    def _status(self, pod: dict[str, Any], phase: str, state: dict[str, Any], **more: Any) -> None:
        metadata, containers = pod["metadata"], pod["spec"].get("containers") or [{}]
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
            "containerStatuses": [
                {"name": each.get("name", "main"), "restartCount": 0, "state": state}
                for each in containers
            ],
            **more,
        }
        self._store.merge(PODS, metadata["namespace"], metadata["name"], {"status": status})
