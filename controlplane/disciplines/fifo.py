"""Strict first in, first out: Kueue's StrictFIFO, Slurm's sched/builtin."""

from controlplane.disciplines.discipline import Discipline, OnBlocked


class Fifo(Discipline):
    name = "fifo"
    description = "first in, first out; a head that does not fit blocks its queue"
    on_blocked = OnBlocked.STOP
