"""Warnings about a request, in the header in which Kubernetes sends them to kubectl."""

import re
from collections.abc import Iterable, Mapping

HEADER = "Warning"
# 299 is a persistent warning; the hyphen stands for an unnamed agent (RFC 7234, section 5.5).
_PREFIX = "299 - "
_NOTICE = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_UNSAFE = re.compile(r"[^ -~]")


def notices(warnings: Iterable[str]) -> dict[str, str]:
    """Return the header with all warnings; an empty dict if there are none."""
    header = ", ".join(_PREFIX + _quoted(warning) for warning in warnings)
    return {HEADER: header} if header else {}


def _quoted(text: str) -> str:
    safe = _UNSAFE.sub("?", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'


def read_notices(headers: Mapping[str, str]) -> list[str]:
    quoted = _NOTICE.findall(headers.get(HEADER, ""))
    return [re.sub(r"\\(.)", r"\1", text) for text in quoted]
