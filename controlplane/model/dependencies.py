"""Dependencies of a job: other jobs and arrays, and how they must end.

`After` is a dependency as a person writes it, by name. `Dependency` has the id of the job or array
that had this name at admission, because names may be reused and ids never are.
"""

from enum import StrEnum

from controlplane.model.values import Value

AFTER_MAX = 100


class Condition(StrEnum):
    """How the other job must end. `failed` includes cancelled jobs."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    FAILED = "failed"
    # Between arrays: each index waits for the success of the same index of the other array.
    CORRESPONDING = "corresponding"


# The conditions of Slurm's --dependency.
SLURM_CONDITIONS = {
    "afterok": Condition.SUCCEEDED,
    "afterany": Condition.FINISHED,
    "afternotok": Condition.FAILED,
    "aftercorr": Condition.CORRESPONDING,
}
CONDITION_WORDS = (*(condition.value for condition in Condition), *SLURM_CONDITIONS)


class After(Value, frozen=True):
    """A dependency as it was written; `job` is NAME, NAMESPACE/NAME, ARRAY[INDEX] or an id."""

    job: str
    condition: Condition = Condition.SUCCEEDED

    def __str__(self) -> str:
        """Return the text that `parse_after` reads."""
        plain = self.condition is Condition.SUCCEEDED
        return self.job if plain else f"{self.job}:{self.condition.value}"


class Dependency(Value, frozen=True, kw_only=True):
    """A dependency with the id of the job or the array that it is on."""

    target: str
    # NAMESPACE/NAME of the target, for people.
    name: str
    condition: Condition = Condition.SUCCEEDED
    # The index within the target, if the target is an array and only one index counts.
    index: int | None = None


def condition_of(word: str) -> Condition:
    """Return the condition that a word names, Slurm's words included.

    Raises ValueError for an unknown word.
    """
    if word in SLURM_CONDITIONS:
        return SLURM_CONDITIONS[word]
    try:
        return Condition(word)
    except ValueError:
        known = ", ".join(CONDITION_WORDS)
        raise ValueError(f"{word[:80]!r} is not a condition; the conditions are: {known}") from None


def parse_after(text: str) -> After:
    """Parse JOB, JOB:CONDITION, or Slurm's CONDITION:JOB.

    Raises ValueError for any other text.
    """
    first, colon, last = text.strip().partition(":")
    if not colon:
        job, condition = first, Condition.SUCCEEDED
    elif first in SLURM_CONDITIONS:
        job, condition = last, SLURM_CONDITIONS[first]
    else:
        job, condition = first, condition_of(last)
    if not job or ":" in job:
        raise ValueError(f"{text[:80]!r} is not JOB or JOB:CONDITION")
    return After(job, condition)
