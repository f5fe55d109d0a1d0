"""Owners of jobs: the spec of each kind of owner, and the owner's data in a job.

A kind of owner is one spec type, a member of the union `OwnerSpec`. There is one today, the array.
"""

import re
from bisect import bisect_left
from enum import StrEnum

from msgspec.structs import replace

from controlplane.model.dependencies import After, Dependency
from controlplane.model.spec import JobSpec
from controlplane.model.values import Value

ARRAY_SIZE_MAX = 10_000
INDEX_MAX = 999_999
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?").fullmatch


class OwnerFailure(StrEnum):
    """Why an owner failed."""

    # All members have ended, and at least one of them did not succeed.
    MEMBERS_FAILED = "members_failed"
    DEPENDENCY_FAILED = "dependency_failed"
    # Admission refused a member.
    MEMBER_REFUSED = "member_refused"
    PLATFORM_ERROR = "platform_error"


class OwnedBy(Value, frozen=True, kw_only=True):
    """The owner of a job: its id, the job's index in it, and variables for the ranks."""

    id: str
    # NAMESPACE/NAME of the owner, for people.
    name: str
    index: int
    env: dict[str, str] = {}


class ArraySpec(Value, frozen=True, kw_only=True, tag="array"):
    """One job for each index, with at most `limit` unfinished ones at a time (None: no limit)."""

    job: JobSpec
    indices: tuple[int, ...]
    limit: int | None = None
    # The dependencies of the array, as written in the manifest.
    after: tuple[After, ...] = ()
    # Arrays in which each member waits for the same index.
    each_after: tuple[Dependency, ...] = ()
    # Seconds for which the array and its members are kept after the array's end.
    ttl_s: float | None = None

    def __contains__(self, index: int) -> bool:
        place = bisect_left(self.indices, index)
        return place < len(self.indices) and self.indices[place] == index


# A union of all kinds of owners; the tag in the log names the kind.
OwnerSpec = ArraySpec


def parse_array(text: str) -> tuple[tuple[int, ...], int | None]:
    """Parse `0-99%10`, `1,3,5-9` or `0-20:5` into sorted indices and the limit (None: no limit).

    Raises ValueError for any other text, and for more than `ARRAY_SIZE_MAX` indices.
    """
    ranges, percent, limit_text = text.strip().partition("%")
    limit = None
    if percent:
        if not re.fullmatch(r"\d{1,9}", limit_text) or int(limit_text) == 0:
            raise ValueError(f"{limit_text[:80]!r} after % is not a positive number")
        limit = int(limit_text)
    indices: set[int] = set()
    for part in ranges.split(","):
        indices.update(_indices_of(part.strip()))
        if len(indices) > ARRAY_SIZE_MAX:
            raise ValueError(f"an array has at most {ARRAY_SIZE_MAX} indices")
    return tuple(sorted(indices)), limit


def _indices_of(part: str) -> range:
    match = _PART(part)
    if match is None:
        raise ValueError(
            f"{part[:80]!r} is not an index (7), a range (0-99) or a range with a step (0-20:5); "
            "several are joined by commas, and %N at the end limits how many run at a time"
        )
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last < first:
        raise ValueError(f"{part}: the range ends before it begins")
    if step == 0:
        raise ValueError(f"{part}: a step of 0 does not get anywhere")
    if last > INDEX_MAX:
        raise ValueError(f"{part}: an index is at most {INDEX_MAX}")
    indices = range(first, last + 1, step)
    if len(indices) > ARRAY_SIZE_MAX:
        raise ValueError(f"{part}: {len(indices)} indices; an array has at most {ARRAY_SIZE_MAX}")
    return indices


def indices_text(indices: tuple[int, ...]) -> str:
    """Return sorted indices as text that `parse_array` reads: 0-3,7,10-12."""
    parts: list[str] = []
    first = 0
    for place, index in enumerate(indices):
        if place + 1 == len(indices) or indices[place + 1] != index + 1:
            begin = indices[first]
            parts.append(str(index) if begin == index else f"{begin}-{index}")
            first = place + 1
    return ",".join(parts)


def array_text(array: ArraySpec) -> str:
    limit = "" if array.limit is None else f"%{array.limit}"
    return f"{indices_text(array.indices)}{limit}"


def plain_array(text: str) -> str:
    """Return the canonical text of an array's indices and limit; raises ValueError."""
    indices, limit = parse_array(text)
    return indices_text(indices) if limit is None else f"{indices_text(indices)}%{limit}"


def written_spec(array: ArraySpec) -> JobSpec:
    """Return the spec that was submitted as this array."""
    text = array_text(array)
    return replace(array.job, array=text, after=array.after, ttl_s=array.ttl_s)


def array_env(array: ArraySpec, index: int) -> dict[str, str]:
    """Return the variables for the ranks of a member, under Muster's and under Slurm's names."""
    values = {
        "INDEX": str(index),
        "COUNT": str(len(array.indices)),
        "MIN": str(array.indices[0]),
        "MAX": str(array.indices[-1]),
    }
    ours = {f"MUSTER_ARRAY_{name}": value for name, value in values.items()}
    slurm = {
        f"SLURM_ARRAY_TASK_{'ID' if name == 'INDEX' else name}": value
        for name, value in values.items()
    }
    return {**ours, **slurm}
