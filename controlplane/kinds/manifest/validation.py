"""Collection of all problems and warnings of a manifest while it is read."""

from controlplane.model.errors import Problem, Rejected

# A hostile document can have a million problems; only this many are kept and reported.
PROBLEMS_MAX = 100
FIELD_CHARS_MAX = 300


class Findings:
    """The problems and warnings of one manifest.

    Paths of fields are in the notation of Kubernetes:
    `spec.tfReplicaSpecs[Worker].template.spec.containers[0].image`.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    @property
    def full(self) -> bool:
        """Return whether `PROBLEMS_MAX` is reached, so that further problems are dropped."""
        return len(self.problems) >= PROBLEMS_MAX

    def required(self, field: str, message: str) -> None:
        self._add("Required", field, message)

    def invalid(self, field: str, message: str) -> None:
        self._add("Invalid", field, message)

    def forbidden(self, field: str, message: str) -> None:
        self._add("Forbidden", field, message)

    def unsupported(self, field: str, message: str) -> None:
        self._add("NotSupported", field, message)

    def mistyped(self, field: str, message: str) -> None:
        self._add("TypeInvalid", field, message)

    def duplicate(self, field: str, message: str) -> None:
        self._add("Duplicate", field, message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def _add(self, sort: str, field: str, message: str) -> None:
        if not self.full:
            self.problems.append(Problem(sort, field[:FIELD_CHARS_MAX], message))

    def refusal(self) -> Rejected:
        message = "; ".join(str(problem) for problem in self.problems)
        first = self.problems[0].field or None
        return Rejected("invalid_manifest", message, field=first, problems=self.problems)
