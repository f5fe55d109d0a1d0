"""The arrival process of a study: it submits each job of a trace at its time."""

from collections.abc import Callable, Sequence
from functools import partial

from adapters.simulated_cluster.workload import workload_of
from controlplane.engine import Engine
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec
from simulator.kernel.virtual_time import VirtualTime
from studies.simulation.recorder import Recorder
from studies.simulation.trace_jobs import Submissions


class Arrivals:
    """Submit the rows of a trace in order.

    `times` are the submission times in the environment's time, by row. `vet` is the cluster's check
    of training jobs; it returns None for a job that the cluster can run.
    """

    def __init__(
        self,
        env: VirtualTime,
        engine: Engine,
        recorder: Recorder,
        submissions: Submissions,
        times: Sequence[float],
        vet: Callable[[JobSpec], Rejected | None],
    ) -> None:
        self._env = env
        self._engine = engine
        self._recorder = recorder
        self._submissions = submissions
        self._times = times
        self._vet = vet
        # The next row to submit.
        self._row = 0

    def submit_due(self) -> None:
        """Submit the next row and all rows that are due now; then schedule the row after them."""
        times, now = self._times, self._env.now
        while True:
            row = self._row
            self._row += 1
            answered = partial(self._recorder.answered, row)
            command = self._submissions.of_row(row)
            refusal = (
                None if workload_of(command.spec).training is None else self._vet(command.spec)
            )
            if refusal is None:
                self._engine.submit(command, answered)
            else:
                answered(refusal)
            if self._row == len(times):
                return
            if times[self._row] > now:
                break
        self._env.call_at(times[self._row], self.submit_due)
