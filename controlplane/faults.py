"""Errors that concern one job: whose they are, and what is recorded of them.

An error in a kind, an adapter or the simulator fails the job that it concerns (`platform_error`), and
everything else goes on. It reaches the engine as an input, `ReportError`, and becomes an event, `JobErrored`;
so the log can be decided again without the error.

An AssertionError in the engine's own decisions, and any error while an event is applied, is a bug: the state
can no longer be trusted. The engine discards it, records which job it was deciding about (`EngineFailed`), and
stops. The next engine reads the log. If the same job stops it at the same place again, the job is quarantined
(`JobQuarantined`), and the engine after that one leads without it.

A decision about one job says whose error it is. A scheduling pass looks at all jobs at once; there the job is
found by trial: `to_blame` runs the pass on copies of the state in which some jobs have failed already.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from controlplane import events as e
from controlplane.draft import Decided
from controlplane.errors import Rejected
from controlplane.image import Image
from controlplane.job import ACTIVE, WAITING, Job
from controlplane.world import World

TEXT_LENGTH_MAX = 500
# An error of more jobs than this in one pass is no single job's.
BLAMED_MAX = 10

# What an engine does when something raises that is about no single command.
DUE, SCHEDULE, APPLY, WANTED = "due", "schedule", "apply", "wanted"


class Fault(NamedTuple):
    """An error as it is recorded: whose, in which operation, its type, and its text, bounded."""

    job: str
    where: str
    error: str
    text: str

    @property
    def input(self) -> str:
        """What two deaths have in common that are one bug: the operation and the type."""
        return f"{self.where}: {self.error}"


class JobFault(Exception):
    """An error of which it is known which job it concerns."""

    def __init__(self, job: str, error: Exception) -> None:
        super().__init__(job, error)
        self.job = job
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__} for job {self.job}: {self.error}"


@contextmanager
def concerning(job: str) -> Iterator[None]:
    """Whatever raises in the block concerns this job; refusals stay what they are."""
    try:
        yield
    except (Rejected, JobFault):
        raise
    except Exception as error:
        raise JobFault(job, error) from error


def original(error: Exception) -> Exception:
    return error.error if isinstance(error, JobFault) else error


def fault_of(error: Exception, job: str, where: str) -> Fault:
    cause = original(error)
    return Fault(job, where, type(cause).__name__, bounded_text(cause))


def platform_refusal(error: Exception, what: str = "this request") -> Rejected:
    """The refusal of what a person asked for, where the platform and not the person is at fault."""
    cause = original(error)
    told = f"the platform failed on {what}: {type(cause).__name__}: {bounded_text(cause)}"
    return Rejected("platform_error", told)


def bounded_text(error: BaseException) -> str:
    """What an error says, as one printable line of bounded length."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be printed is still an error
        return ""
    # Cut first, for it may be megabytes; a surrogate cannot be encoded.
    text = text[: 2 * TEXT_LENGTH_MAX].encode(errors="replace").decode()
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:TEXT_LENGTH_MAX]


# ------------------------------------------------------------------ whose error a pass's is

OnePass = Callable[[World, float], Iterator[Decided]]
SetAside = Callable[[World, str, float], Decided]


def to_blame(image: Image, now: float, one_pass: OnePass, set_aside: SetAside) -> list[str]:
    """The jobs without which a scheduling pass on this state raises nothing; empty if it is no job's error.

    `set_aside` decides that a job has failed. Of two jobs that raise only together, the one that came
    last is blamed. If every one of several jobs that wait would be to blame, the error is the pass's own.
    Takes about log2(n) passes for each job to blame.
    """

    def raises(without: Sequence[str]) -> bool:
        world = World(image)
        for job in without:
            _take(world, set_aside(world, job, now), now)
        try:
            for decided in one_pass(world, now):
                _take(world, decided, now)
        except Exception:  # noqa: BLE001 - that is what is asked
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
        # The shortest beginning of the line without which nothing raises ends with one to blame.
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
    return job.phase not in WAITING, -job.submitted_as


def _take(world: World, decided: Decided, now: float) -> None:
    first = world.position + 1
    batch = [e.Recorded(first + i, now, event) for i, event in enumerate(decided.events)]
    if batch:
        world.apply_together(batch, decided.outcome)
