"""Warnings about what was sent, in the header in which Kubernetes sends them to kubectl."""

import re
from collections.abc import Iterable, Mapping

HEADER = "Warning"
# 299 is a warning that lasts; the hyphen stands for whoever warns.
_PREFIX = "299 - "
_NOTICE = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_UNSAFE = re.compile(r"[^ -~]")


def notices(warnings: Iterable[str]) -> dict[str, str]:
    """The header with all warnings, or nothing."""
    told = ", ".join(_PREFIX + _quoted(warning) for warning in warnings)
    return {HEADER: told} if told else {}


def _quoted(text: str) -> str:
    safe = _UNSAFE.sub("?", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'


def read_notices(headers: Mapping[str, str]) -> list[str]:
    found = _NOTICE.findall(headers.get(HEADER, ""))
    return [re.sub(r"\\(.)", r"\1", text) for text in found]
