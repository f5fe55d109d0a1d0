"""Which pods are ranks of which jobs: their names follow from the jobs alone."""

import logging

from api.control import Control, Unavailable
from controlplane.job import Job
from controlplane.kinds.kind import Gang
from controlplane.kinds.registry import kind_of
from controlplane.model import JobSpec
from controlplane.world import World

_log = logging.getLogger("muster")

Pods = dict[tuple[str, str], tuple[str, int]]


class PodNames:
    """Answers for jobs that hold devices. A job's names are worked out once for each of its specs."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._known: dict[str, tuple[JobSpec, list[str]]] = {}

    async def __call__(self) -> Pods:
        try:
            return await self._control.ask(self._all)
        except Unavailable:
            # Then the readings are nobody's for the moment.
            return {}

    def _all(self, world: World) -> Pods:
        found: Pods = {}
        known, self._known = self._known, {}
        for job_id in sorted(world.live):
            job = world.jobs[job_id]
            before = known.get(job_id)
            names = before[1] if before is not None and before[0] is job.spec else _names(job)
            self._known[job_id] = (job.spec, names)
            found.update({(job.namespace, name): (job_id, rank) for rank, name in enumerate(names)})
        return found


def _names(job: Job) -> list[str]:
    try:
        tell = kind_of(job.spec).tell(Gang(job.namespace, job.name, job.spec))
        return [tell(rank).name for rank in range(job.spec.size)]
    except Exception:  # noqa: BLE001 - a kind may raise anything, and the other jobs have names
        _log.exception("the pods of job %s have no names; its readings are left out", job.id)
        return []
