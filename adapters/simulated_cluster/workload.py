"""The workload of a job: the hint that the simulated cluster owns.

It states how the ranks of a job behave: a fixed duration and an exit code, or a training whose speed
the simulator computes. A real cluster ignores it. The native form has it as `spec.workload`, and all
other forms as annotations `sim.muster.dev/...`.

To add a field, add it to `Training` or `Workload`; its annotation follows from its name and type
(`annotation_name`), and `LIMITS` has the range of a number. `training.py` passes the fields of
`Training` on to the simulator.
"""

from collections.abc import Collection, Iterator, Mapping
from types import UnionType
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from controlplane.kinds.hints import HIDDEN, HintProblem, HintSchema, annotation_name
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import JobSpec
from controlplane.model.values import Value
from simulator.collectives.compression import COMPRESSIONS
from simulator.hardware.names import UnknownHardware
from simulator.training.models import find_model
from simulator.training.plans import SCHEMES
from simulator.training.recipes import GRADIENT_BYTES

NAME = "workload"
PREFIX = "sim.muster.dev/"


class Training(Value, frozen=True, kw_only=True):
    """What a job trains, for a cluster that models the speed of training at a placement.

    0 and None select the default. `docs/simulator.md` lists models, schemes and the other values.
    """

    model: str
    steps: int = 1000
    precision: str = ""
    # Samples per GPU and step.
    batch: int = 0
    # Empty: parameter servers if the job has any, otherwise `ring`.
    scheme: str = ""
    compression: str = "none"
    accumulate: int = 1
    servers: int | None = None
    real_data: bool = False
    # Compute seconds per GPU and step, instead of the catalogue's value.
    compute_s: float | None = None
    tensor: int = 1
    pipeline: int = 1
    global_batch: int = 0
    # Seconds of work between checkpoints (0: no checkpoints), and the pause that each one costs.
    checkpoint_s: float = 0.0
    checkpoint_write_s: float = 0.0
    # Steps of training between evaluations (0: no evaluations), and the seconds that each one takes.
    evaluate_steps: int = 0
    evaluate_s: float = 0.0


class Workload(Value, frozen=True):
    """How a job behaves on a simulated cluster; a real cluster ignores it."""

    duration_s: float = 60.0
    exit_code: int = 0
    # The rank that exits with `exit_code` in a failing attempt; the other ranks hang until stopped.
    exit_rank: int = 0
    # How many attempts end with `exit_code` before one succeeds; None: all of them.
    failing_attempts: int | None = None
    # Replaces `duration_s`: the run length follows from the steps and the speed at the placement.
    training: Training | None = None


_PLAIN = Workload()


def workload_of(spec: JobSpec) -> Workload:
    """Decode the workload of a job; the default if the job has none.

    Raises msgspec.ValidationError for a job that was recorded without a check of its hints.
    """
    value = spec.hints.get(NAME)
    return _PLAIN if value is None else msgspec.convert(value, Workload)


def hints_of(workload: Workload) -> dict[str, Any]:
    """Return the hints of a job with this workload only."""
    plain = msgspec.to_builtins(workload)
    return {NAME: plain} if plain else {}


def with_workload(spec: JobSpec, workload: Workload) -> JobSpec:
    """Return the spec with another workload, and with its other hints."""
    others = {name: value for name, value in spec.hints.items() if name != NAME}
    return replace(spec, hints={**others, **hints_of(workload)})


# ------------------------------------------------------------------ manifests

_SECONDS = (0, checking.SECONDS_MAX)
# The least and greatest number of each field; native manifests check only those of `Workload` here,
# and the rest with the whole recipe.
LIMITS: dict[str, tuple[int, int]] = {
    "duration_s": _SECONDS,
    "exit_code": (0, 255),
    "exit_rank": (0, checking.RANKS_MAX),
    "failing_attempts": (0, checking.BILLION),
    "steps": (1, checking.BILLION),
    "batch": (0, 1_000_000),
    "accumulate": (1, 1_000_000),
    "servers": (1, 100_000),
    "compute_s": (0, 1_000_000),
    "tensor": (1, 100_000),
    "pipeline": (1, 100_000),
    "global_batch": (0, checking.BILLION),
    "checkpoint_s": _SECONDS,
    "checkpoint_write_s": _SECONDS,
    "evaluate_steps": (0, checking.BILLION),
    "evaluate_s": _SECONDS,
}


def _fields(struct: type[msgspec.Struct], *types: type) -> dict[str, tuple[str, type]]:
    """Return annotation -> field and type, for the fields of these types."""
    fields = {}
    for field in msgspec.structs.fields(struct):
        of = get_args(field.type)[0] if isinstance(field.type, UnionType) else field.type
        if of in types:
            fields[annotation_name(field.name)] = (field.name, of)
    return fields


_OF_WORKLOAD = _fields(Workload, int, float)
_OF_TRAINING = {**_fields(Training, str), **_fields(Training, int, float)}
_KNOWN = {**_OF_WORKLOAD, **_OF_TRAINING}


def read_annotations(annotations: Mapping[str, str], findings: Findings) -> Workload:
    """Return the workload that annotations describe; their names are without the prefix."""
    fields: dict[str, Any] = {}
    training: dict[str, Any] = {}
    for name, text in annotations.items():
        path = f"metadata.annotations[{shown(PREFIX + name)}]"
        if name not in _KNOWN:
            findings.unsupported(path, f"known are: {', '.join(_KNOWN)}")
            continue
        field, of = _KNOWN[name]
        value: str | float | None = text
        if of is not str:
            value = checking.read_number(path, text, of, LIMITS[field], findings)
        if value is not None:
            (fields if name in _OF_WORKLOAD else training)[field] = value
    if training and "model" not in training:
        findings.invalid(f"metadata.annotations[{PREFIX}model]", "is missing")
        return Workload(**fields)
    return Workload(**fields, training=Training(**training) if training else None)


def check(workload: Workload, spec: JobSpec) -> Iterator[HintProblem]:
    """Yield the problems of a workload that do not depend on the cluster; `vet` finds the others."""
    for field, _ in _OF_WORKLOAD.values():
        value = getattr(workload, field)
        least, most = LIMITS[field]
        if field == "exit_rank":
            if not 0 <= value < max(spec.size, 1):
                yield field, f"{shown(value)} is no rank of this gang"
        elif value is not None and not least <= value <= most:
            yield field, f"{shown(value)} is not between {least} and {most}"


# The words of the simulator, by the field that has them.
_WORDS: dict[str, Collection[str]] = {
    "precision": GRADIENT_BYTES,
    "scheme": SCHEMES,
    "compression": COMPRESSIONS,
}


def redact(workload: Workload) -> Workload:
    """Return the workload with the simulator's own words only; any other text may be a user's."""
    training = workload.training
    if training is None:
        return workload
    texts = {field: getattr(training, field) for field, _ in _fields(Training, str).values()}
    hidden = {field: HIDDEN for field, text in texts.items() if text and not _is_word(field, text)}
    return replace(workload, training=replace(training, **hidden)) if hidden else workload


def _is_word(field: str, text: str) -> bool:
    if field != "model":
        return text in _WORDS.get(field, ())
    try:
        find_model(text)
    except UnknownHardware:
        return False
    return True


SCHEMA = HintSchema(
    name=NAME,
    type=Workload,
    annotation_prefix=PREFIX,
    read_annotations=read_annotations,
    check=check,
    redact=redact,
)
