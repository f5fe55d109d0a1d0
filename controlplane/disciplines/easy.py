"""EASY backfill: only the head has a planned start, and no backfilled job may delay it. Slurm's backfill is alike."""

from controlplane.disciplines.discipline import Discipline, OnBlocked


class Easy(Discipline):
    name = "easy"
    description = (
        "first in, first out; a job may start ahead of a blocked head if it does not delay the head"
    )
    on_blocked = OnBlocked.BACKFILL
