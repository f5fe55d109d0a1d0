"""Which kind and version a document is; documents read, and written again.

The kinds of this release are registered here. Others come in through `register` when the program is
assembled, before anything is read; the core itself never looks for them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from controlplane.errors import Problem, Rejected
from controlplane.job import Job, Phase
from controlplane.kinds import (
    hostfile_job,
    jax,
    mpi,
    mxnet,
    native,
    paddle,
    pytorch,
    structure,
    tensorflow,
    trainer,
    xgboost,
)
from controlplane.kinds.conditions import timestamp
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Kind, Modern, Submission, Told
from controlplane.kinds.manifest import with_wishes_said
from controlplane.kinds.structure import shown
from controlplane.model import DoneWhen, JobSpec

BUILT_IN = (
    native.KIND,
    tensorflow.KIND,
    pytorch.KIND,
    mpi.KIND,
    mxnet.KIND,
    xgboost.KIND,
    paddle.KIND,
    jax.KIND,
    trainer.KIND,
    hostfile_job.KIND,
)
_kinds: dict[str, Kind] = {}
_forms: dict[tuple[str, str], Form] = {}


class KindTaken(Exception):
    """Two kinds have the same name."""


def register(kind: Kind) -> None:
    """Makes a kind known; the same one again changes nothing."""
    known = _kinds.get(kind.name)
    if known is not None and known is not kind:
        raise KindTaken(f"there is already a kind {kind.name}; choose another name")
    _kinds[kind.name] = kind
    for form in kind.forms:
        _forms[form.version, kind.name] = form


for _kind in BUILT_IN:
    register(_kind)


def kinds() -> tuple[Kind, ...]:
    return tuple(_kinds.values())


def forms() -> Mapping[tuple[str, str], Form]:
    """Every form of a manifest that is known, by apiVersion and kind."""
    return _forms


def kind_of(spec: JobSpec) -> Kind:
    """The kind of a job; a job whose kind is not known here is told only its plain facts."""
    return _kinds.get(spec.kind, native.KIND)


def form_of(spec: JobSpec) -> Form:
    """The form that a job was written in; the newest one of its kind if that is not known."""
    kind = kind_of(spec)
    return _forms.get((spec.version, kind.name), kind.forms[0])


# ------------------------------------------------------------------ reading


def read_manifest(document: object) -> Submission:
    """A document as `kubectl` would take it, understood; raises Rejected with all that is wrong."""
    if not isinstance(document, dict | Mapping):
        raise Rejected("invalid_manifest", "a manifest is a mapping with apiVersion and kind")
    version, kind = document.get("apiVersion"), document.get("kind")
    form = None
    if isinstance(version, str) and isinstance(kind, str):
        form = _forms.get((version, kind))
    if form is None:
        raise _no_form(version, kind)
    findings = Findings()
    manifest = structure.fitted(document, form.manifest, findings)
    misfits = findings.problems
    if manifest is None:
        raise findings.refusal()
    findings.problems = []
    submission = form.read(manifest, findings)
    if misfits:
        findings.problems = misfits + structure.beside(misfits, findings.problems)
    elif form is native.KIND.forms[0] and not findings.problems:
        submission = _as_its_kind(submission, findings)
    if findings.problems:
        raise findings.refusal()
    if findings.warnings:
        submission = replace(submission, warnings=tuple(findings.warnings))
    return submission


def _no_form(version: object, kind: object) -> Rejected:
    findings = Findings()
    for field, value in (("apiVersion", version), ("kind", kind)):
        if value is None:
            findings.required(field, "it is needed here")
        elif not isinstance(value, str):
            findings.mistyped(field, "text is needed here")
    return findings.refusal() if findings.problems else _unknown(shown(kind), shown(version))


def _unknown(kind: str, version: str) -> Rejected:
    known = _kinds.get(kind)
    if known is not None:
        versions = ", ".join(form.version for form in known.forms)
        told = f"{kind} comes in these versions: {versions}; not in {version}"
        return Rejected("unknown_kind", told, field="apiVersion")
    told = f"{kind} is not a kind this release knows; the kinds are: {', '.join(_kinds)}"
    return Rejected("unknown_kind", told, field="kind")


def _as_its_kind(submission: Submission, findings: Findings) -> Submission:
    """A job in the native form that belongs to another kind keeps that kind's rules too.

    Numbers that only the native form knows, such as a back-off, may be what they like.
    """
    spec = submission.spec
    if spec.kind == native.NAME:
        return submission
    try:
        form = _wanted_form(spec.kind, spec.version)
        own = replace(submission, spec=replace(spec, version=form.version))
        again = read_manifest(_written(form, own))
    except Rejected as refusal:
        told = refusal.problems or (Problem("Invalid", "", refusal.message),)
        for problem in told:
            where = f" (of a {spec.kind}: {problem.field})" if problem.field else ""
            findings.invalid("spec.framework", f"{problem.message}{where}")
        return submission
    for name in _differences(own.spec, again.spec):
        if name in ("roles", "done_when", "options"):
            findings.invalid(f"spec.{name}", f"no {spec.kind} has these")
    return own


def _written(form: Form, submission: Submission) -> dict[str, Any]:
    try:
        return form.write(submission)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Rejected("invalid_manifest", "the options are not those of this kind") from None


# ------------------------------------------------------------------ and back


NATIVE, OWN = "native", "own"


def convert_manifest(document: object, to: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A manifest in another form, and warnings about it; `to` is native, own or KIND/VERSION.

    Every version converts to the newest of its kind. What the newest cannot say is told in the
    warnings; all other conversions raise Rejected where anything of the job would be lost.
    """
    submission = read_manifest(document)
    kind, version = _named(to)
    if kind == submission.spec.kind and version:
        form, newest = form_of(submission.spec), kind_of(submission.spec).forms[0]
        if form.modern is not None and _wanted_form(kind, version) is newest:
            written, warnings = _modernised(submission, form.modern, newest)
            return written, (*submission.warnings, *warnings)
    return write_manifest(submission, kind, version), submission.warnings


def _modernised(
    submission: Submission, modern: Callable[[Submission], Modern], newest: Form
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The manifest in the newest version, and what it cannot say or says otherwise."""
    wanted, warnings = modern(submission)
    spec = with_wishes_said(replace(wanted.spec, version=newest.version))
    wanted = replace(wanted, spec=spec, warnings=())
    found = read_manifest(_written(newest, wanted))
    before, now = _decider(spec), _decider(found.spec)
    if before != now:
        warnings = (*warnings, f"in {newest.version} {now} decides the job; before, {before} did")
    lost = [*_differences(wanted, found), *_differences(_comparable(spec), _comparable(found.spec))]
    if lost:
        warnings = (*warnings, f"{newest.version} has no way to say this job's {', '.join(lost)}")
    return write_manifest(found), warnings


def _decider(spec: JobSpec) -> str:
    """Which ranks decide the job, in words."""
    rule, count = spec.done_when, len(spec.ranks_of(spec.done_when.role))
    if count <= 1 or not (rule.first or rule.any):
        return f"every {rule.role}" if count > 1 else rule.role
    return f"the first {rule.role}" if rule.first else f"any {rule.role}"


def _comparable(spec: JobSpec) -> JobSpec:
    """The job without what newer versions add or order otherwise, and without who decides it."""
    roles = tuple(sorted(spec.roles, key=lambda role: role.name))
    return replace(spec, roles=roles, options={}, done_when=DoneWhen(""))


def _named(to: str) -> tuple[str, str]:
    """The kind and version that people mean; both are empty for a job's own."""
    if to in (NATIVE, OWN):
        return native.NAME if to == NATIVE else "", ""
    kind, _, version = to.partition("/")
    return kind, version


def write_manifest(submission: Submission, kind: str = "", version: str = "") -> dict[str, Any]:
    """The manifest of a job in some version of a kind, its own unless said otherwise.

    Raises Rejected where anything of the job would be lost.
    """
    spec = submission.spec
    name = kind or spec.kind
    form = _wanted_form(name, version or (spec.version if name == spec.kind else ""))
    if name == native.NAME:
        return form.write(submission)
    if name != spec.kind:
        told = f"a {spec.kind} cannot become a {name}; it can be shown as {native.NAME}"
        raise Rejected("cannot_convert", told)
    said = with_wishes_said(replace(spec, version=form.version))
    wanted = replace(submission, spec=said, warnings=())
    # In its own form every job that was read can be written; what raises there is no fault of the person's.
    document = form.write(wanted) if form is form_of(spec) else _written(form, wanted)
    _refuse_losses(wanted, read_manifest(document), form)
    return document


def _wanted_form(kind: str, version: str) -> Form:
    known = _kinds.get(kind)
    if known is None:
        raise _unknown(kind, version)
    if not version:
        return known.forms[0]
    for form in known.forms:
        if version in (form.version, form.version.rpartition("/")[2]):
            return form
    raise _unknown(kind, version)


def _refuse_losses(wanted: Submission, found: Submission, form: Form) -> None:
    lost = [*_differences(wanted, found), *_differences(wanted.spec, found.spec)]
    if lost:
        told = f"{form.version} has no way to say this job's {', '.join(lost)}"
        problems = [Problem("Invalid", f"spec.{name}", "it would be lost") for name in lost]
        raise Rejected("cannot_convert", told, problems=problems)


def _differences(one: Submission | JobSpec, other: Submission | JobSpec) -> Iterable[str]:
    for name in one.__struct_fields__:
        if name not in ("spec", "warnings") and getattr(one, name) != getattr(other, name):
            yield name


# ------------------------------------------------------------------ jobs


def manifest_of(job: Job, to: str = OWN) -> dict[str, Any]:
    """A job's manifest as a cluster would return it: what it is, and its status in its own words."""
    kind, version = _named(to)
    asleep = job.phase is Phase.SUSPENDED
    document = write_manifest(Submission(job.namespace, job.name, job.spec, asleep), kind, version)
    form = _forms[document["apiVersion"], document["kind"]]
    metadata = {**document["metadata"], "uid": job.id}
    metadata["creationTimestamp"] = timestamp(job.submitted_at)
    return {**document, "metadata": metadata, "status": form.status(job)}


def told_of(job: Job, rank: int, domain: str = "") -> Told:
    """What a rank of the job is told, on whatever cluster it runs."""
    return kind_of(job.spec).tell(Gang(job.namespace, job.name, job.spec, domain))(rank)
