"""Errors that concern one job: which job, and what is recorded.

An error in a kind, an adapter or the simulator fails the job that it concerns (`platform_error`),
and everything else continues. It reaches the engine as an input, `ReportError`, and becomes an
event, `JobErrored`; so the log can be decided again without the error.

An AssertionError in the engine's own decisions, and any error while an event is applied, is a bug:
the state can no longer be trusted. The engine discards it, records which job it was deciding about
(`EngineFailed`), and stops. The next engine reads the log. If the same job stops it at the same
place again, the job is quarantined (`JobQuarantined`), and the engine after that one leads without
it.

A decision about one job identifies the job. A scheduling pass considers all jobs at once; there
`to_blame` finds the job by trial: it runs the pass on copies of the state in which some jobs have
failed already.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from controlplane.lifecycle.draft import Decision
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.errors import JobFault, Rejected
from controlplane.model.phases import ACTIVE, WAITING
from controlplane.state.image import StateImage
from controlplane.state.world import World

TEXT_LENGTH_MAX = 500
# If more jobs than this would be to blame for an error in one pass, none is.
BLAMED_MAX = 10

# The operations of an engine that belong to no single command.
DUE, SCHEDULE, APPLY, WANTED = "due", "schedule", "apply", "wanted"


class Fault(NamedTuple):
    """An error as it is recorded: the job, the operation, the error's type, and its bounded text."""

    job: str
    where: str
    error: str
    text: str

    @property
    def input(self) -> str:
        """The operation and the type of the error: equal for two failures that are the same bug."""
        return f"{self.where}: {self.error}"


def original(error: Exception) -> Exception:
    """The error that a JobFault wraps, or the error itself."""
    return error.error if isinstance(error, JobFault) else error


def fault_of(error: Exception, job: str, where: str) -> Fault:
    """The record of an error in the operation `where`; `job` is empty if it concerns none."""
    cause = original(error)
    return Fault(job, where, type(cause).__name__, bounded_text(cause))


def platform_refusal(error: Exception, what: str = "this request") -> Rejected:
    """The refusal of a request for which the platform, not the person, is at fault."""
    cause = original(error)
    message = f"the platform failed on {what}: {type(cause).__name__}: {bounded_text(cause)}"
    return Rejected("platform_error", message)


def bounded_text(error: BaseException) -> str:
    """The text of an error as one printable line of at most TEXT_LENGTH_MAX characters."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - printing an error may raise too
        return ""
    # Cut first, because it may be megabytes; a surrogate cannot be encoded.
    text = text[: 2 * TEXT_LENGTH_MAX].encode(errors="replace").decode()
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:TEXT_LENGTH_MAX]


# ------------------------------------------------------------------ whose error a pass's is

OnePass = Callable[[World, float], Iterator[Decision]]
SetAside = Callable[[World, str, float], Decision]


def to_blame(image: StateImage, now: float, one_pass: OnePass, set_aside: SetAside) -> list[str]:
    """The jobs without which a scheduling pass on this state does not raise.

    It is empty if the error is no job's. `set_aside` decides that a job has failed. Of two jobs
    that raise only together, the one that was submitted last is blamed. If all of several waiting
    jobs would be to blame, the error is the pass's own. Each job takes about log2(n) passes.
    """

    def raises(without: Sequence[str]) -> bool:
        world = World(image)
        for job in without:
            _take(world, set_aside(world, job, now), now)
        try:
            for decided in one_pass(world, now):
                _take(world, decided, now)
        except Exception:  # noqa: BLE001 - whether it raises is the question
            return True
        return False

    suspects = [job.id for job in sorted(image.jobs, key=_latest_first) if _takes_part(job)]
    waiting = {job.id for job in image.jobs if job.phase in WAITING}
    blamed: list[str] = []
    while raises(blamed):
        if len(blamed) >= BLAMED_MAX:
            return []
        left = [job for job in suspects if job not in blamed]
        if not left or raises([*blamed, *left]):
            return []
        # The shortest prefix of `left` without which nothing raises ends with a job to blame.
        low, high = 1, len(left)
        while low < high:
            middle = (low + high) // 2
            if raises([*blamed, *left[:middle]]):
                low = middle + 1
            else:
                high = middle
        blamed.append(left[high - 1])
    return [] if len(waiting) > 1 and waiting <= set(blamed) else blamed


def _takes_part(job: Job) -> bool:
    return job.phase in WAITING or job.phase in ACTIVE


def _latest_first(job: Job) -> tuple[bool, int]:
    return job.phase not in WAITING, -job.submitted_position


def _take(world: World, decided: Decision, now: float) -> None:
    first = world.position + 1
    batch = [
        e.Recorded(first + i, now, event, step=world.step) for i, event in enumerate(decided.events)
    ]
    if batch:
        world.apply_together(batch, decided.outcome)
