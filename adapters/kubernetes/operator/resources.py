"""Which resources of a cluster are jobs: one for each kind and API group that has a manifest. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.kinds.kind import Form, Kind
from controlplane.kinds.registry import kinds


class Resource(NamedTuple):
    """A kind in one API group, with its forms there; the first is the one that is stored."""

    group: str
    kind: str
    forms: tuple[Form, ...]

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """What the API server calls it, such as tfjobs.kubeflow.org."""
        return f"{self.plural}.{self.group}"

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(version_of(form) for form in self.forms)

    def form(self, api_version: str) -> Form | None:
        return next((form for form in self.forms if form.version == api_version), None)


def version_of(form: Form) -> str:
    return form.version.rpartition("/")[2]


def resources(known: Iterable[Kind] | None = None) -> tuple[Resource, ...]:
    """Every resource that a job may be, of the kinds that are registered unless others are given."""
    return tuple(each for kind in (kinds() if known is None else known) for each in _of(kind))


def _of(kind: Kind) -> Iterable[Resource]:
    groups: dict[str, list[Form]] = {}
    for form in kind.forms:
        groups.setdefault(form.version.rpartition("/")[0], []).append(form)
    return (Resource(group, kind.name, tuple(forms)) for group, forms in groups.items())
