"""How long jobs work, where the log does not say: learned from what really became of them.

A simulated cluster makes of a job what its workload says. On a real cluster the workload says
nothing, and a fork takes the work that a job really needed; for a job whose end is not in the log,
it takes the median of the jobs most like it (`controlplane.run_lengths`). A job that trains a model is
learned too, unless the model of the cluster is known, on which the past can be replayed.
"""

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from controlplane.commands import AnyCommand, SubmitJob
from controlplane.image import Image
from controlplane.model import Cause, JobSpec, Workload
from controlplane.run_lengths import RunLengths, Sample
from simulator.time_slicing import SWITCH_COST
from studies.fork.past import Timed
from studies.ledger import JobFacts, Ledger

# Jobs that took what their workload says, within this, speak for a simulated cluster.
CLOSE_S = 1.0
CLOSE_SHARE = 0.01
MOST = 0.8


def is_as_written(ledger: Ledger) -> bool:
    """Whether jobs took as long as their workloads say. Without any that ended, they may."""
    ended = [
        facts
        for facts in ledger.jobs.values()
        if facts.run_s is not None and facts.spec.workload.training is None
    ]
    close = [facts for facts in ended if _is_close(facts)]
    return len(close) >= MOST * len(ended)


def _is_close(facts: JobFacts) -> bool:
    said_s, took_s = facts.spec.workload.duration_s, facts.run_s or 0.0
    near_s = max(CLOSE_S, CLOSE_SHARE * said_s)
    # Beside others on its device a simulated job takes this much longer.
    shares = any(role.shares_device for role in facts.spec.roles)
    longest_s = said_s / (1.0 - SWITCH_COST) if shares else said_s
    return said_s - near_s <= took_s <= longest_s + near_s


class Learned:
    """The work of every job that the log knows of; with `trusts`, what jobs say of it counts."""

    def __init__(self, ledger: Ledger, *, trusts: bool, trains: bool = False) -> None:
        """With `trains`, the cluster that jobs ran on can be made again, and trains as it did."""
        self._trusts = trusts
        self._trains = trains
        self._facts = ledger.jobs
        self._lengths = RunLengths()
        for facts in ledger.jobs.values():
            if facts.run_s is not None and facts.finished_at is not None:
                sample = Sample(facts.finished_at, facts.run_s, 0.0)
                self._lengths.add(_namespace(facts), facts.spec, sample)

    def _usual_s(self, facts: JobFacts | None, spec: JobSpec) -> float:
        """The median of the jobs most like it that have succeeded."""
        samples = self._lengths.nearest("" if facts is None else _namespace(facts), spec)
        return median(sample.ran_s for sample in samples) if samples else 3_600.0

    def spec(self, job: str, spec: JobSpec) -> JobSpec:
        if self._trusts and (self._trains or spec.workload.training is None):
            return spec
        facts = self._facts.get(job)
        return replace(spec, workload=self._work(facts, spec))

    def _work(self, facts: JobFacts | None, spec: JobSpec) -> Workload:
        if facts is None or facts.finished_at is None or not facts.outcome:
            return Workload(duration_s=self._usual_s(facts, spec))
        own = [r for r in facts.restarts if r.cause is Cause.EXIT and r.exit_code]
        if facts.run_s is not None:
            if not own:
                return Workload(duration_s=facts.run_s)
            code = own[-1].exit_code or 1
            return Workload(facts.run_s, code, own[-1].rank or 0, len(own))
        ran_s = self._usual_s(facts, spec)
        if facts.outcome == "Failed" and facts.exit_code:
            return Workload(duration_s=ran_s, exit_code=facts.exit_code)
        return Workload(duration_s=ran_s)

    def image(self, image: Image) -> Image:
        jobs = [replace(job, spec=self.spec(job.id, job.spec)) for job in image.jobs]
        return replace(image, jobs=jobs)

    def asked(self, asked: Sequence[Timed]) -> list[Timed]:
        return [(at, self._command(command)) for at, command in asked]

    def _command(self, command: AnyCommand) -> AnyCommand:
        if isinstance(command, SubmitJob):
            return replace(command, spec=self.spec(command.job, command.spec))
        return command


def _namespace(facts: JobFacts) -> str:
    return facts.name.partition("/")[0]
