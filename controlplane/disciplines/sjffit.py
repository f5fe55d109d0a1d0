"""Shortest job first, with jobs that fit ahead of a blocked head."""

from controlplane.disciplines.discipline import OnBlocked
from controlplane.disciplines.sjf import Sjf


class SjfFit(Sjf):
    name = "sjffit"
    description = "shortest job first; any job that fits may start ahead of a blocked one"
    on_blocked = OnBlocked.SKIP
