"""Kinds of third parties, which come in as Python entry points of the group `muster.kinds`."""

from importlib.metadata import EntryPoint, entry_points

from cli.complaints import Complaint
from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import KindTaken, register

GROUP = "muster.kinds"


def load_kinds() -> None:
    """Makes every installed kind known; complains of one that cannot be."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        _load(point)


def _load(point: EntryPoint) -> None:
    package = "" if point.dist is None else f" of {point.dist.name}"
    where = f"the kind {point.name} ({point.value}){package}"
    try:
        kind = point.load()
    except Exception as error:
        raise _bad(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, Kind):
        raise _bad(f"{where} is not a Kind but a {type(kind).__name__}")
    try:
        register(kind)
    except KindTaken as taken:
        raise _bad(f"{where}: {taken}") from None


def _bad(message: str) -> Complaint:
    return Complaint(message, hint="Mend the package, or uninstall it.")
