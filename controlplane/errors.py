"""What can go wrong and has a name: refusals for people, and a log that says no."""


class Rejected(Exception):
    """A request that cannot be met. The code is stable; the message is for the person."""

    def __init__(self, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class LogConflict(Exception):
    """Another writer leads now: this one's append changed nothing, and it must stop."""


class LogUnavailable(Exception):
    """The log could not be reached or written; whether the append happened may be unknown."""


class LogCorrupt(Exception):
    """The log does not say what was once written to it."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"position {position}: {message}")
        self.position = position
