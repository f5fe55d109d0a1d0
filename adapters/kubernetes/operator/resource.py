"""The custom resources that are jobs: one for each kind and API group with a manifest. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.kinds.kind import Form, Kind
from controlplane.kinds.registry import kinds


class JobResource(NamedTuple):
    """A kind in one API group, with its forms there; the first is the storage version."""

    group: str
    kind: str
    forms: tuple[Form, ...]

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """The name of its definition, such as tfjobs.kubeflow.org."""
        return f"{self.plural}.{self.group}"

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(version_of(form) for form in self.forms)

    def form(self, api_version: str) -> Form | None:
        """Return the form with this apiVersion, or None."""
        return next((form for form in self.forms if form.version == api_version), None)


def version_of(form: Form) -> str:
    """Return the version without its group, such as v1."""
    return form.version.rpartition("/")[2]


def resources(known: Iterable[Kind] | None = None) -> tuple[JobResource, ...]:
    """Return the resources of the kinds in `known`; of all registered kinds if it is None."""
    return tuple(each for kind in (kinds() if known is None else known) for each in _of(kind))


def _of(kind: Kind) -> Iterable[JobResource]:
    groups: dict[str, list[Form]] = {}
    for form in kind.forms:
        groups.setdefault(form.version.rpartition("/")[0], []).append(form)
    return (JobResource(group, kind.name, tuple(forms)) for group, forms in groups.items())
