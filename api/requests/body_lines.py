"""The lines of fields in a body, so that an editor can show a problem where it is.

JSON is read as YAML here, which it is for this purpose.
"""

import re

import yaml

# A larger body is not searched: composing it takes too long.
BYTES_MAX = 64 << 10
_ELEMENT = re.compile(r"\[([^]]*)\]\.?")


def line_of(body: bytes, field: str) -> int | None:
    """Return the line, from 1, of a field such as `spec.roles[0].gpus` or `spec.roles[worker].gpus`; None if it is not known.

    For a field that the document does not have, it is the line of what should contain it.
    """
    if len(body) > BYTES_MAX:
        return None
    try:
        node = yaml.compose(body.decode(), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return None
    return None if node is None else _line(node, field, node.start_mark.line) + 1


def _line(node: yaml.Node, field: str, line: int) -> int:
    if not field:
        return line
    if isinstance(node, yaml.SequenceNode):
        element = _ELEMENT.match(field)
        inner = None if element is None else _element(node, element[1])
        if element is None or inner is None:
            return line
        return _line(inner, field[element.end() :], inner.start_mark.line)
    if isinstance(node, yaml.MappingNode):
        # A key may have dots, so the longest one that fits is the right one.
        for key, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
            name = str(key.value)
            rest = field[len(name) :]
            if field.startswith(name) and (not rest or rest[0] in ".["):
                return _line(value, rest.removeprefix("."), key.start_mark.line)
    return line


def _element(node: yaml.SequenceNode, key: str) -> yaml.Node | None:
    """Return an element by its index, or the one whose `name` is `key`; None if there is none."""
    elements: list[yaml.Node] = node.value
    if key.isdecimal():
        return elements[int(key)] if int(key) < len(elements) else None
    for inner in elements:
        pairs = inner.value if isinstance(inner, yaml.MappingNode) else ()
        if any(name.value == "name" and value.value == key for name, value in pairs):
            return inner
    return None
