"""Submissions, read so that those with the same roles share them.

People submit the same program again and again. The roles of a spec, with all that is in them, are
most of its objects: where their text is the same, they are read once, and there is less to make, to
keep and to let go. Values are never changed, so nobody can tell.
"""

from typing import Any

import msgspec
from msgspec.structs import astuple, fields

from controlplane import events as e
from controlplane.model import JobSpec, Role

# So many texts are remembered, of so many bytes at most; then it begins anew.
TEXTS_MAX = 1_000
TEXT_BYTES_MAX = 10_000

_read_roles = msgspec.json.Decoder(tuple[Role, ...]).decode
_known: dict[bytes, tuple[Role, ...]] = {}


def _sketch() -> Any:
    """A submission whose roles are left as they are written; they come first in a spec."""
    first, *others = fields(JobSpec)
    assert first.name == "roles", first
    rules: dict[str, Any] = {"frozen": True, "gc": False, "forbid_unknown_fields": True}
    spec = msgspec.defstruct(
        "SpecSketch", [("roles", msgspec.Raw), *[_field(field) for field in others]], **rules
    )
    same = [_field(field) for field in fields(e.JobSubmitted) if field.name != "spec"]
    return msgspec.defstruct("SubmissionSketch", [*same, ("spec", spec)], **rules)


def _field(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return field.name, field.type
    if field.default_factory is not msgspec.NODEFAULT:
        # Told to be what it makes, it would be taken for that when compiled.
        make: Any = msgspec.field
        return field.name, field.type, make(default_factory=field.default_factory)
    return field.name, field.type, field.default


_read_sketch = msgspec.json.Decoder(_sketch()).decode


def read_submitted(payload: bytes) -> e.JobSubmitted:
    """What the codec would read; raises msgspec's errors, though they may speak of other places."""
    sketch = _read_sketch(payload)
    spec = sketch.spec
    text = bytes(spec.roles)
    roles = _known.get(text)
    if roles is None:
        roles = _learn(text)
    return e.JobSubmitted(
        sketch.job, sketch.namespace, sketch.name, JobSpec(roles, *astuple(spec)[1:])
    )


def _learn(text: bytes) -> tuple[Role, ...]:
    roles = _read_roles(text)
    if len(text) <= TEXT_BYTES_MAX:
        if len(_known) >= TEXTS_MAX:
            _known.clear()
        _known[text] = roles
    return roles
