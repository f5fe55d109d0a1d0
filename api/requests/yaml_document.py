"""One YAML document as JSON values, built from the C parser's events.

The document is built while it is parsed. So one that is too deep, or that uses features which a
manifest does not need (anchors, aliases, merge keys, tags), is refused as soon as they appear and
never grows large. Scalars mean what they mean to kubectl: a date or `12:30` is text, and a key is
text as written.
"""

import math
import re

import yaml

from controlplane.model.errors import Rejected

DEPTH_MAX = 64
# Each value costs about 5 us of CPU time that the engine needs too.
PARTS_MAX = 100_000

Value = object
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
_WORDS: dict[str, Value] = {"": None, "~": None}
for _words, _meaning in ((_TRUE, True), (_FALSE, False), (("null",), None)):
    for _word in _words:
        _WORDS |= dict.fromkeys((_word, _word.title(), _word.upper()), _meaning)


def parse_yaml(text: str) -> Value:
    """Return the only document of `text`; raise Rejected with the line and column of an error."""
    build = _Build()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            build.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise Rejected("invalid_yaml", _message(error), line=line) from None
    return build.result()


def _message(error: yaml.YAMLError) -> str:
    """Return the parser's message and its place, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        reason = getattr(error, "problem", None) or "it cannot be read"
        return f"line {mark.line + 1}, column {mark.column + 1}: {reason}"
    return " ".join(str(error).replace("<unicode string>", "the body").split())


class _Build:
    """The documents as far as they were parsed."""

    def __init__(self) -> None:
        self._documents: list[Value] = []
        self._parts = 0
        # The open mappings and sequences, outermost first, each with the key that waits for its
        # value. Sequences have none.
        self._open: list[dict[str, Value] | list[Value]] = []
        self._keys: list[str | None] = []

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._enter({}, event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._enter([], event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise Rejected("yaml_alias", f"{_place(event)}: write it out in full")

    def result(self) -> Value:
        if not self._documents:
            raise Rejected("invalid_yaml", "there is no document in it")
        return self._documents[0]

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        _refuse_extras(event)
        is_plain = event.implicit[0]
        if not self._open and is_plain and event.value == "":
            # An empty document after a last `---`, with which many files end.
            return
        if self._wants_key():
            self._key(event)
        else:
            self._put(_meaning_of(event) if is_plain else event.value, event)

    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None

    def _key(self, event: yaml.ScalarEvent) -> None:
        key = event.value
        if key == "<<":
            raise Rejected("yaml_alias", f"{_place(event)}: write merged keys out in full")
        if key in self._open[-1]:
            raise Rejected("duplicate_key", f"{_place(event)}: {key!r} is given twice")
        self._keys[-1] = key

    def _enter(
        self, value: dict[str, Value] | list[Value], event: yaml.CollectionStartEvent
    ) -> None:
        _refuse_extras(event)
        if self._wants_key():
            raise Rejected("invalid_yaml", f"{_place(event)}: a key must be text")
        if len(self._open) >= DEPTH_MAX:
            raise Rejected("too_deep", f"{_place(event)}: nested deeper than {DEPTH_MAX} levels")
        self._put(value, event)
        self._open.append(value)
        self._keys.append(None)

    def _put(self, value: Value, event: yaml.Event) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise Rejected("too_complex", f"{_place(event)}: more than {PARTS_MAX} values")
        if not self._open:
            if self._documents:
                raise Rejected("several_documents", f"{_place(event)}: a second document begins")
            self._documents.append(value)
            return
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            key = self._keys[-1]
            assert key is not None
            parent[key] = value
            self._keys[-1] = None


def _refuse_extras(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
    if event.anchor is not None:
        raise Rejected("yaml_alias", f"{_place(event)}: an anchor is not taken")
    if event.tag is not None:
        raise Rejected("yaml_tag", f"{_place(event)}: a tag is not taken")


def _meaning_of(event: yaml.ScalarEvent) -> Value:
    """Return the value of an unquoted scalar."""
    text: str = event.value
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    try:
        number = _number(text)
    except ValueError:
        raise Rejected("not_finite", f"{_place(event)}: the number is too long") from None
    if number in (math.inf, -math.inf):
        raise Rejected("not_finite", f"{_place(event)}: {text} is not a finite number")
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if _INT.fullmatch(text):
        digits = text.replace("_", "")
        unsigned = digits.lstrip("+-")
        is_old_octal = len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit()
        return int(digits, 8 if is_old_octal else 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.inf if _NOT_FINITE.fullmatch(text) else None


def _place(event: yaml.Event) -> str:
    mark = event.start_mark
    assert mark is not None
    return f"line {mark.line + 1}, column {mark.column + 1}"
