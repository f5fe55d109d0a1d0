"""The registry of disciplines. The composition root adds those of other packages before any log is read."""

from controlplane.disciplines.conservative import Conservative
from controlplane.disciplines.discipline import Discipline
from controlplane.disciplines.easy import Easy
from controlplane.disciplines.fifo import Fifo
from controlplane.disciplines.fit import BestEffortFifo
from controlplane.disciplines.las import Las
from controlplane.disciplines.sjf import Sjf
from controlplane.disciplines.sjffit import SjfFit
from controlplane.disciplines.tiresias import Tiresias
from controlplane.model.registry import Registry

DISCIPLINES: Registry[Discipline] = Registry(
    "discipline",
    Fifo(),
    BestEffortFifo(),
    Sjf(),
    SjfFit(),
    Las(),
    Tiresias(),
    Easy(),
    Conservative(),
)
