"""The names that Kubernetes takes: a job's becomes part of the names of its pods and services."""

import re

# A DNS-1035 label.
_is_label = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
# Labels that were asked about, as long as they are few.
_known: set[str] = set()
_KNOWN_MAX = 1024


def is_label(name: str) -> bool:
    """Whether Kubernetes would take this as the name of a service."""
    return _is_label(name) is not None


def is_common_label(name: str) -> bool:
    """The same for names that many share, as of namespaces and roles: most are found again."""
    if name in _known:
        return True
    if not is_label(name):
        return False
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known.add(name)
    return True
