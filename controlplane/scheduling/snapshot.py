"""What the scheduler looks at: free devices and waiting gangs, cheap to copy, free to scribble on."""

from collections.abc import Sequence

from controlplane.devices import FreeDevices, mask_of
from controlplane.job import Job
from controlplane.model import Placement, Queue
from controlplane.world import Waiting, World


class Snapshot:
    """The world as one scheduling pass sees it, with what the pass has given away so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free: FreeDevices | None = None
        self._used: dict[str, int] = {}

    @property
    def free(self) -> FreeDevices:
        """Copied only once somebody is about to look, since most passes end at a full queue."""
        if self._free is None:
            self._free = self._world.free.copy()
        return self._free

    @property
    def queues(self) -> dict[str, Queue]:
        return self._world.queues

    def line(self, queue: str) -> Sequence[Waiting]:
        """The queue's waiting jobs, in order."""
        return self._world.waiting.get(queue, ())

    def growing(self) -> list[Job]:
        """Running jobs whose gangs want more ranks, in the order in which they were submitted."""
        jobs = [self._world.jobs[job_id] for job_id in self._world.growing]
        return sorted(jobs, key=lambda job: job.submitted_as)

    def job(self, job_id: str) -> Job:
        return self._world.jobs[job_id]

    def used(self, queue: str) -> int:
        """GPUs that the queue's jobs hold, counting what this pass gave them."""
        return self._world.used.get(queue, 0) + self._used.get(queue, 0)

    def node_name(self, ordinal: int) -> str:
        return self._world.node_names[ordinal]

    def take(self, job: Job, placement: Placement) -> None:
        """Marks a placement as given away."""
        for slot in placement:
            ordinal = self._world.nodes[slot.node].ordinal
            self.free.hold(ordinal, mask_of(slot.devices))
        gpus = sum([len(slot.devices) for slot in placement])
        self._used[job.spec.queue] = self._used.get(job.spec.queue, 0) + gpus
