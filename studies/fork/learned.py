"""How long jobs work in a fork, learned from what really became of them.

On a simulated cluster the workload of a job defines its work. On a real cluster the workload is
empty, and a fork takes the work that a job really needed; for a job whose end is not in the log, it
takes the median of the jobs most like it (`controlplane.state.run_lengths`). A training job is
learned too, unless the model of the cluster is known, on which the past can be replayed.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from adapters.simulated_cluster.workload import Workload, with_workload, workload_of
from controlplane.lifecycle.owner import Owner
from controlplane.model.commands import AnyCommand, SubmitJob
from controlplane.model.failures import Cause
from controlplane.model.owners import ArraySpec
from controlplane.model.spec import JobSpec
from controlplane.state.image import StateImage
from controlplane.state.run_lengths import RunLengths, Sample
from simulator.machine.time_slicing import SWITCH_COST
from studies.analysis.job_history import JobFacts, JobHistories
from studies.fork.past import Timed

# A job that took what its workload states, within these limits, indicates a simulated cluster.
CLOSE_S = 1.0
CLOSE_SHARE = 0.01
MOST = 0.8


def is_as_written(histories: JobHistories) -> bool:
    """Whether at least `MOST` of the jobs took as long as their workloads state; true without any."""
    ended = [
        facts
        for facts in histories.jobs.values()
        if facts.run_s is not None and workload_of(facts.spec).training is None
    ]
    close = [facts for facts in ended if _is_close(facts)]
    return len(close) >= MOST * len(ended)


def _is_close(facts: JobFacts) -> bool:
    planned_s, took_s = workload_of(facts.spec).duration_s, facts.run_s or 0.0
    near_s = max(CLOSE_S, CLOSE_SHARE * planned_s)
    # On a device shared with other jobs, a simulated job takes this much longer.
    shares = any(role.shares_device for role in facts.spec.roles)
    longest_s = planned_s / (1.0 - SWITCH_COST) if shares else planned_s
    return planned_s - near_s <= took_s <= longest_s + near_s


class Learned:
    """The work of every job that the log contains; with `trusts`, the workloads of jobs are kept."""

    def __init__(self, histories: JobHistories, *, trusts: bool, trains: bool = False) -> None:
        """Learn from `histories`; with `trains`, training jobs are simulated instead of learned.

        That requires the cluster's model, on which training repeats exactly.
        """
        self._trusts = trusts
        self._trains = trains
        self._facts = histories.jobs
        self._lengths = RunLengths()
        # The run times of the members of each array.
        self._of_array = defaultdict[str, list[float]](list)
        for facts in histories.jobs.values():
            if facts.run_s is not None and facts.finished_at is not None:
                sample = Sample(facts.finished_at, facts.run_s, 0.0)
                self._lengths.add(_namespace(facts), facts.spec, sample)
                self._of_array[facts.array].append(facts.run_s)

    def _usual_s(self, namespace: str, spec: JobSpec) -> float:
        """Return the median run time of the most similar jobs that succeeded; one hour without any."""
        samples = self._lengths.nearest(namespace, spec)
        return median(sample.ran_s for sample in samples) if samples else 3_600.0

    def spec(self, job: str, spec: JobSpec) -> JobSpec:
        """Return the spec of a job with its learned work, or unchanged if it is trusted."""
        if self._is_trusted(spec):
            return spec
        return with_workload(spec, self._work(self._facts.get(job), spec))

    def array_spec(self, array: str, namespace: str, spec: JobSpec) -> JobSpec:
        """Return the spec of an array's members with the median work of those that succeeded.

        An array without such members gets the work of similar jobs.
        """
        if self._is_trusted(spec):
            return spec
        known = self._of_array.get(array)
        usual_s = median(known) if known else self._usual_s(namespace, spec)
        return with_workload(spec, Workload(duration_s=usual_s))

    def _is_trusted(self, spec: JobSpec) -> bool:
        return self._trusts and (self._trains or workload_of(spec).training is None)

    def _work(self, facts: JobFacts | None, spec: JobSpec) -> Workload:
        namespace = "" if facts is None else _namespace(facts)
        if facts is None or facts.finished_at is None or not facts.outcome:
            return Workload(duration_s=self._usual_s(namespace, spec))
        own = [r for r in facts.restarts if r.cause is Cause.EXIT and r.exit_code]
        if facts.run_s is not None:
            if not own:
                return Workload(duration_s=facts.run_s)
            code = own[-1].exit_code or 1
            return Workload(facts.run_s, code, own[-1].rank or 0, len(own))
        ran_s = self._usual_s(namespace, spec)
        if facts.outcome == "Failed" and facts.exit_code:
            return Workload(duration_s=ran_s, exit_code=facts.exit_code)
        return Workload(duration_s=ran_s)

    def image(self, image: StateImage) -> StateImage:
        """Return the state with the learned work in all jobs, and in the arrays for later members."""
        jobs = [replace(job, spec=self.spec(job.id, job.spec)) for job in image.jobs]
        owners = tuple(replace(owner, spec=self._array(owner)) for owner in image.owners)
        return replace(image, jobs=jobs, owners=owners)

    def _array(self, owner: Owner) -> ArraySpec:
        spec = owner.spec
        return replace(spec, job=self.array_spec(owner.id, owner.namespace, spec.job))

    def asked(self, asked: Sequence[Timed]) -> list[Timed]:
        """Return the commands with the learned work in submitted jobs."""
        return [(at, self._command(command)) for at, command in asked]

    def _command(self, command: AnyCommand) -> AnyCommand:
        if not isinstance(command, SubmitJob):
            return command
        if command.spec.array:
            spec = self.array_spec(command.job, command.namespace, command.spec)
        else:
            spec = self.spec(command.job, command.spec)
        return replace(command, spec=spec)


def _namespace(facts: JobFacts) -> str:
    return facts.name.partition("/")[0]
