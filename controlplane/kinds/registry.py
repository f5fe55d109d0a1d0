"""The registry of kinds: finds the kind and version of a document, reads it and writes it.

The kinds of this release are registered here. The composition root adds others with `register`,
before any document is read; the core itself does not search for plug-ins.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from controlplane.kinds import hints, native
from controlplane.kinds.conditions import timestamp
from controlplane.kinds.kind import (
    Form,
    GangContext,
    Kind,
    Modern,
    RankEnvironment,
    Submission,
    with_owner_env,
)
from controlplane.kinds.kubeflow import jax, mxnet, paddle, pytorch, tensorflow, xgboost
from controlplane.kinds.manifest import structure
from controlplane.kinds.manifest.annotations import with_workflow
from controlplane.kinds.manifest.manifest import with_scheduling_annotations
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi import hostfile_job, mpi
from controlplane.kinds.trainer import trainer
from controlplane.lifecycle.job import Job
from controlplane.model.addresses import AddressBook, ServiceNames
from controlplane.model.errors import Problem, Rejected
from controlplane.model.phases import Phase
from controlplane.model.spec import DoneWhen, JobSpec

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
    """Add a kind; registering the same value again changes nothing.

    Raises KindTaken if another kind has the same name.
    """
    known = _kinds.get(kind.name)
    if known is not None and known is not kind:
        raise KindTaken(f"there is already a kind {kind.name}; choose another name")
    _kinds[kind.name] = kind
    for form in kind.forms:
        _forms[form.version, kind.name] = form


for _kind in BUILT_IN:
    register(_kind)


def register_hint(schema: hints.HintSchema) -> None:
    """Add a hint, so that manifests may have it; registering the same value again changes nothing.

    Raises HintTaken if another hint has its name or its prefix, or if every job has such a field.
    """
    kind = native.with_hints(hints.including(schema))
    hints.register(schema)
    _kinds[kind.name] = kind
    for form in kind.forms:
        _forms[form.version, kind.name] = form


def kinds() -> tuple[Kind, ...]:
    return tuple(_kinds.values())


def forms() -> Mapping[tuple[str, str], Form]:
    """Return every registered form of a manifest, by apiVersion and kind."""
    return _forms


def kind_of(spec: JobSpec) -> Kind:
    """Return the kind of a job, or the native kind if the job's own is not registered."""
    return _kinds.get(spec.kind, _kinds[native.NAME])


def form_of(spec: JobSpec) -> Form:
    """Return the form of a job's manifest, or the newest form of its kind if that is not known."""
    kind = kind_of(spec)
    return _forms.get((spec.version, kind.name), kind.forms[0])


# ------------------------------------------------------------------ reading


def read_manifest(document: object) -> Submission:
    """Read a manifest, as `kubectl` would accept it, into a submission.

    Raises Rejected with every problem of the document.
    """
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
    submission = replace(submission, spec=with_workflow(submission.spec, findings))
    if misfits:
        findings.problems = misfits + structure.beside(misfits, findings.problems)
    elif kind == native.NAME and not findings.problems:
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
        message = f"{kind} comes in these versions: {versions}; not in {version}"
        return Rejected("unknown_kind", message, field="apiVersion")
    message = f"{kind} is not a kind this release knows; the kinds are: {', '.join(_kinds)}"
    return Rejected("unknown_kind", message, field="kind")


def _as_its_kind(submission: Submission, findings: Findings) -> Submission:
    """Check a native job of another kind by that kind's rules, and return it with its version.

    The job is written in its own form and read again. Roles, `done_when` and options must survive
    this; numbers that only the native form has, such as a back-off, need not. Problems go to the
    findings.
    """
    spec = submission.spec
    if spec.kind == native.NAME:
        return submission
    try:
        form = _wanted_form(spec.kind, spec.version)
        own = replace(submission, spec=replace(spec, version=form.version))
        again = read_manifest(_written(form, own))
    except Rejected as refusal:
        message = refusal.problems or (Problem("Invalid", "", refusal.message),)
        for problem in message:
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


# ------------------------------------------------------------------ writing


NATIVE, OWN = "native", "own"


def convert_manifest(document: object, to: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a manifest in another form, and warnings; `to` is native, own or KIND/VERSION.

    Every version converts to the newest version of its kind, with a warning for each part that the
    newest version cannot express. Every other conversion raises Rejected if it would lose a part of
    the job.
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
    """Return the manifest in the newest version, and warnings about what is lost or changed."""
    wanted, warnings = modern(submission)
    spec = with_scheduling_annotations(replace(wanted.spec, version=newest.version))
    wanted = replace(wanted, spec=spec, warnings=())
    result = read_manifest(_written(newest, wanted))
    before, now = _decider(spec), _decider(result.spec)
    if before != now:
        warnings = (*warnings, f"in {newest.version} {now} decides the job; before, {before} did")
    lost = [
        *_differences(wanted, result),
        *_differences(_comparable(spec), _comparable(result.spec)),
    ]
    if lost:
        warnings = (*warnings, f"{newest.version} cannot express this job's {', '.join(lost)}")
    return write_manifest(result), warnings


def _decider(spec: JobSpec) -> str:
    """Return which ranks decide the job, in words."""
    rule, count = spec.done_when, len(spec.ranks_of(spec.done_when.role))
    if count <= 1 or not (rule.first or rule.any):
        return f"every {rule.role}" if count > 1 else rule.role
    return f"the first {rule.role}" if rule.first else f"any {rule.role}"


def _comparable(spec: JobSpec) -> JobSpec:
    """Return the spec without the options, the order of the roles and `done_when`.

    Newer versions add or change these; `_modernised` reports a changed `done_when` by itself.
    """
    roles = tuple(sorted(spec.roles, key=lambda role: role.name))
    return replace(spec, roles=roles, options={}, done_when=DoneWhen(""))


def _named(to: str) -> tuple[str, str]:
    """Parse `to` into a kind and a version; both are empty for the job's own."""
    if to in (NATIVE, OWN):
        return native.NAME if to == NATIVE else "", ""
    kind, _, version = to.partition("/")
    return kind, version


def write_manifest(submission: Submission, kind: str = "", version: str = "") -> dict[str, Any]:
    """Return the manifest of a job in a version of a kind; both default to the job's own.

    Raises Rejected if the conversion would lose a part of the job.
    """
    spec = submission.spec
    name = kind or spec.kind
    form = _wanted_form(name, version or (spec.version if name == spec.kind else ""))
    if name == native.NAME:
        return form.write(submission)
    if name != spec.kind:
        message = f"a {spec.kind} cannot become a {name}; it can be shown as {native.NAME}"
        raise Rejected("cannot_convert", message)
    annotated = with_scheduling_annotations(replace(spec, version=form.version))
    wanted = replace(submission, spec=annotated, warnings=())
    # Every job that was read can be written in its own form. An error there is a bug and must not
    # become a refusal.
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


def _refuse_losses(wanted: Submission, result: Submission, form: Form) -> None:
    lost = [*_differences(wanted, result), *_differences(wanted.spec, result.spec)]
    if lost:
        message = f"{form.version} cannot express this job's {', '.join(lost)}"
        problems = [Problem("Invalid", f"spec.{name}", "it would be lost") for name in lost]
        raise Rejected("cannot_convert", message, problems=problems)


def _differences(one: Submission | JobSpec, other: Submission | JobSpec) -> Iterable[str]:
    """Yield the names of the fields, and of the hints, in which two jobs differ."""
    for name in one.__struct_fields__:
        before, after = getattr(one, name), getattr(other, name)
        if name in ("spec", "warnings") or before == after:
            continue
        if name == "hints":
            yield from (hint for hint in {**before, **after} if before.get(hint) != after.get(hint))
        else:
            yield name


# ------------------------------------------------------------------ jobs


def manifest_of(job: Job, to: str = OWN) -> dict[str, Any]:
    """Return a job's manifest as a cluster would return it, with its uid and its kind's status."""
    kind, version = _named(to)
    asleep = job.phase is Phase.SUSPENDED
    document = write_manifest(Submission(job.namespace, job.name, job.spec, asleep), kind, version)
    form = _forms[document["apiVersion"], document["kind"]]
    metadata = {**document["metadata"], "uid": job.id}
    metadata["creationTimestamp"] = timestamp(job.submitted_at)
    return {**document, "metadata": metadata, "status": form.status(job)}


def rank_environment(job: Job, rank: int, addresses: AddressBook | None = None) -> RankEnvironment:
    """Return the environment of a rank on a cluster with these addresses; None: service names."""
    gang = GangContext(job.namespace, job.name, job.spec, addresses or ServiceNames())
    return with_owner_env(job, kind_of(job.spec).environments(gang)(rank))
