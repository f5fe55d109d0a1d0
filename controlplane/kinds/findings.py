"""What is found while a manifest is read: everything wrong with it at once, and warnings."""

from controlplane.errors import Problem, Rejected

# A hostile document can be wrong in a million places; nobody reads more than this.
PROBLEMS_MAX = 100
FIELD_CHARS_MAX = 300


class Findings:
    """Collects problems with the paths of their fields, written as Kubernetes writes them:
    `spec.tfReplicaSpecs[Worker].template.spec.containers[0].image`."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    @property
    def full(self) -> bool:
        """Whether further problems would not be told anyway."""
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

    def too_long(self, field: str, message: str) -> None:
        self._add("TooLong", field, message)

    def duplicate(self, field: str, message: str) -> None:
        self._add("Duplicate", field, message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def _add(self, sort: str, field: str, message: str) -> None:
        if not self.full:
            self.problems.append(Problem(sort, field[:FIELD_CHARS_MAX], message))

    def refuse_if_any(self) -> None:
        """Raises Rejected with all of them."""
        if self.problems:
            raise self.refusal()

    def refusal(self) -> Rejected:
        told = "; ".join(str(problem) for problem in self.problems)
        first = self.problems[0].field or None
        return Rejected("invalid_manifest", told, field=first, problems=self.problems)
