"""Names that Kubernetes accepts; a job's name is part of the names of its pods and services."""

import re

# A DNS label of RFC 1035: what Kubernetes requires of a service's name.
_is_label = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
# A cache of valid labels, cleared when it is full.
_known: set[str] = set()
_KNOWN_MAX = 1024


def is_label(name: str) -> bool:
    """Return whether Kubernetes accepts `name` as the name of a service."""
    return _is_label(name) is not None


def is_common_label(name: str) -> bool:
    """Return the same as `is_label`, with a cache for names that recur: namespaces and roles."""
    if name in _known:
        return True
    if not is_label(name):
        return False
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known.add(name)
    return True
