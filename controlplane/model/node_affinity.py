"""Required node affinity of pods, matched by the rules of kube-scheduler.

Muster binds pods itself, so it must honour the node affinity of their templates:
`affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution`. A node suits a pod if at
least one of the terms matches. A term matches if all of its expressions (over labels) and all of its
fields (over the node's name) match; a term with neither matches no node. A gang uses only nodes that
suit all of its roles. Preferred affinity is ignored.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from controlplane.model.cluster import NodeInfo
from controlplane.model.spec import JobSpec

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"
_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_NUMBERS = ("Gt", "Lt")
OPERATORS = (*_LISTS, *_PRESENCE, *_NUMBERS)


class Requirement(NamedTuple):
    key: str
    operator: str
    values: tuple[str, ...]
    # Whether `key` is a field of the node instead of a label.
    is_field: bool


# Requirements that must all match.
Term = tuple[Requirement, ...]
# For each pod with an affinity its terms, of which at least one must match.
Affinity = tuple[tuple[Term, ...], ...]


def affinity_of(spec: JobSpec) -> Affinity:
    """Return what the pods of a job require; empty if they require nothing.

    A malformed term, which a log older than its check may have, matches no node.
    """
    required_terms: dict[tuple[Term, ...], None] = {}
    for role in spec.roles:
        required = _required(role.template)
        if required is not None:
            required_terms[tuple(_terms(required))] = None
    return tuple(required_terms)


def suits(affinity: Affinity, node: NodeInfo) -> bool:
    return all(any(_term_holds(term, node) for term in terms) for terms in affinity)


def problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each problem of a pod template's node affinity: the path of a field, and a message."""
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    required = _required(template)
    if required is None:
        return
    terms = required.get("nodeSelectorTerms") if isinstance(required, Mapping) else None
    if not isinstance(terms, list) or not terms:
        yield path, "a list with at least one term is needed"
        return
    for index, term in enumerate(terms):
        where = f"{path}[{index}]"
        if not isinstance(term, Mapping):
            yield where, "is no term"
            continue
        for part in ("matchExpressions", "matchFields"):
            given = term.get(part) or []
            if not isinstance(given, list):
                yield f"{where}.{part}", "is no list"
                continue
            for number, each in enumerate(given):
                if wrong := _wrong(each, is_field=part == "matchFields"):
                    yield f"{where}.{part}[{number}]", wrong


def _wrong(given: Any, *, is_field: bool) -> str:
    """Return a message on what is wrong with one requirement, or "" if it is valid."""
    if not isinstance(given, Mapping) or not isinstance(given.get("key"), str):
        return "needs a key and an operator"
    operator, values = given.get("operator"), given.get("values") or []
    if operator not in OPERATORS:
        return f"the operator {str(operator)[:40]!r} is not one of {', '.join(OPERATORS)}"
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        return "values must be a list of texts"
    if is_field and (given["key"] != _NAME or operator not in _LISTS):
        return f"the only field is {_NAME}, with In or NotIn"
    if operator in _LISTS and not values:
        return f"{operator} needs at least one value"
    if operator in _PRESENCE and values:
        return f"{operator} takes no values"
    if operator in _NUMBERS and (len(values) != 1 or not _is_integer(values[0])):
        return f"{operator} needs one whole number as a text"
    return ""


def _required(template: Mapping[str, Any]) -> Any:
    value: Any = template
    for name in ("spec", "affinity", "nodeAffinity", _REQUIRED):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _terms(required: Any) -> Iterator[Term]:
    terms = required.get("nodeSelectorTerms") if isinstance(required, Mapping) else None
    for term in terms if isinstance(terms, list) else ():
        if isinstance(term, Mapping):
            parts = [
                *_requirements(term.get("matchExpressions"), is_field=False),
                *_requirements(term.get("matchFields"), is_field=True),
            ]
            yield tuple(part for part in parts if part is not None) if None not in parts else ()


def _requirements(given: Any, *, is_field: bool) -> Iterable[Requirement | None]:
    for each in given if isinstance(given, list) else ():
        if _wrong(each, is_field=is_field):
            yield None
        else:
            values = tuple(each.get("values") or ())
            yield Requirement(each["key"], each["operator"], values, is_field)


def _term_holds(term: Term, node: NodeInfo) -> bool:
    return bool(term) and all(_holds(each, node) for each in term)


def _holds(requirement: Requirement, node: NodeInfo) -> bool:
    key, operator, values, is_field = requirement
    value = node.name if is_field else node.labels.get(key)
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            if value is None or not _is_integer(value):
                return False
            limit, number = int(values[0]), int(value)
            return number > limit if operator == "Gt" else number < limit


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 18
