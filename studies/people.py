"""The people of a trace: each submits a job at its time."""

from collections.abc import Callable, Sequence
from functools import partial

from controlplane.engine import Engine
from controlplane.errors import Rejected
from controlplane.model import JobSpec
from simulator.agenda import Agenda
from studies.recorder import Recorder
from studies.submissions import Submissions


class People:
    """`times` are those of the agenda, in the order of the rows; `vet` is the cluster's."""

    def __init__(
        self,
        agenda: Agenda,
        engine: Engine,
        recorder: Recorder,
        submissions: Submissions,
        times: Sequence[float],
        vet: Callable[[JobSpec], Rejected | None],
    ) -> None:
        self._agenda = agenda
        self._engine = engine
        self._recorder = recorder
        self._submissions = submissions
        self._times = times
        self._vet = vet
        # The row that comes next.
        self._row = 0

    def come(self) -> None:
        """The next one submits, and whoever's time has come as well; then the one after is awaited."""
        times, now = self._times, self._agenda.now
        while True:
            row = self._row
            self._row += 1
            answered = partial(self._recorder.answered, row)
            command = self._submissions.of_row(row)
            refusal = None if command.spec.workload.training is None else self._vet(command.spec)
            if refusal is None:
                self._engine.submit(command, answered)
            else:
                answered(refusal)
            if self._row == len(times):
                return
            if times[self._row] > now:
                break
        self._agenda.call_after(times[self._row] - now, self.come)
