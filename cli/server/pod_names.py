"""The pods of jobs by name: the names follow from the jobs alone."""

import logging

from api.engine.engine_client import EngineClient, Unavailable
from controlplane.kinds.kind import GangContext
from controlplane.kinds.registry import kind_of
from controlplane.lifecycle.job import Job
from controlplane.model.spec import JobSpec
from controlplane.state.world import World

_log = logging.getLogger("muster")

Pods = dict[tuple[str, str], tuple[str, int]]


class PodNames:
    """Maps pod names to ranks of jobs that hold devices. Names are computed once per job spec."""

    def __init__(self, engine_client: EngineClient) -> None:
        self._engine_client = engine_client
        self._known: dict[str, tuple[JobSpec, list[str]]] = {}

    async def __call__(self) -> Pods:
        try:
            return await self._engine_client.ask(self._all)
        except Unavailable:
            # Readings of this job's pods are then attributed to no job.
            return {}

    def _all(self, world: World) -> Pods:
        pods: Pods = {}
        known, self._known = self._known, {}
        for job_id in sorted(world.devices.live):
            job = world.jobs[job_id]
            before = known.get(job_id)
            names = before[1] if before is not None and before[0] is job.spec else _names(job)
            self._known[job_id] = (job.spec, names)
            pods.update({(job.namespace, name): (job_id, rank) for rank, name in enumerate(names)})
        return pods


def _names(job: Job) -> list[str]:
    try:
        describe = kind_of(job.spec).environments(GangContext(job.namespace, job.name, job.spec))
        return [describe(rank).name for rank in range(job.spec.size)]
    except Exception:  # noqa: BLE001 - a kind may raise anything, and the other jobs have names
        _log.exception("the pods of job %s have no names; its readings are left out", job.id)
        return []
