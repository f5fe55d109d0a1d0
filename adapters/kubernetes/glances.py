"""Small questions about a job and its objects, asked while it is tended. Pure."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.errors import ApiError
from adapters.kubernetes.objects import Rendering
from adapters.kubernetes.plan import Conflict, Observed, Ref
from adapters.kubernetes.work import Work
from controlplane.commands import ReportRanks
from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import kind_of


def has_living_files(work: Work) -> bool:
    """Whether the job may have files that say which ranks run."""
    if work.job is None or not work.is_live:
        return False
    return kind_of(work.job.spec).files is not Kind._field_defaults["files"]


def is_up(observed: Observed, name: str) -> bool:
    pod = observed.get(Ref("Pod", name))
    return pod is not None and (pod.get("status") or {}).get("phase") == "Running"


def rare(rendering: Rendering) -> list[dict[str, Any]]:
    """What the job needs of kinds that nobody watches, as far as is needed to ask for it."""
    found = rendering.accounts()
    found += [rendering.secret(name, lambda: ("", "")) for name in rendering.secrets()]
    found += rendering.boards()
    return found + (rendering.autoscalers() if rendering.is_owned else [])


def without_gone(report: ReportRanks, names: list[str], work: Work) -> ReportRanks:
    """A pod that may have been made without our knowing is not told gone."""
    unsure = {ref.name for ref in work.unsure if ref.kind == "Pod"}
    kept = tuple(i for i in report.gone if i >= len(names) or names[i] not in unsure)
    return replace(report, gone=kept)


def conflicts_of(errors: Iterable[ApiError]) -> list[Conflict]:
    return [Conflict("Pod", "", str(error)) for error in errors]
