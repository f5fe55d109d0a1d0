"""YAML files with one or more documents, parsed so that every error can name its line.

The API's `parse_yaml` defines what a document means: a file must describe the same job whether it
is submitted here or posted with curl. This module splits a file into documents and keeps the YAML
nodes of each, which have line numbers.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from api.requests.yaml_document import parse_yaml
from cli.errors import WRONG_USAGE, CliError
from cli.settings import reason
from controlplane.model.errors import Rejected

SIZE_CHARS_MAX = 16_000_000

# A step of a path: a name, an index, or a name in brackets because it contains dots.
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Document:
    """One document, and the file and line it came from."""

    value: Any
    source: str
    node: yaml.Node | None = None

    def where(self, field: str | None = None) -> str:
        """Return FILE:LINE of `field`, or of its closest ancestor that exists."""
        if self.node is None:
            return self.source
        return f"{self.source}:{line_of(self.node, field or '')}"


def read_documents(name: str) -> list[Document]:
    """Return the documents of a file, or of standard input if `name` is `-`."""
    source = "standard input" if name == "-" else name
    try:
        text = _read(name)
    except OSError as error:
        raise _bad(f"{source} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError:
        raise _bad(f"{source} is not UTF-8 text") from None
    if len(text) > SIZE_CHARS_MAX:
        raise _bad(f"{source} is longer than {SIZE_CHARS_MAX:,} characters")
    return parse_documents(text, source)


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(4 * SIZE_CHARS_MAX).decode("utf-8-sig")
    with Path(name).open(encoding="utf-8-sig") as file:
        return file.read(SIZE_CHARS_MAX + 1)


def parse_documents(text: str, source: str) -> list[Document]:
    try:
        documents = [_parsed(piece, source) for piece in _pieces(text)]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _bad(f"{source}:{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise _bad(f"{source}: {' '.join(str(error).split())}") from None
    except Rejected as error:
        raise _bad(f"{source}: {error.message}") from None
    if not documents:
        raise _bad(f"{source} holds no document")
    return documents


def _pieces(text: str) -> Iterator[str]:
    """Yield the text of each document, after empty lines that keep its line numbers true."""
    events = list(yaml.parse(text, Loader=yaml.CSafeLoader))
    starts = [(e, root) for e, root in pairwise(events) if isinstance(e, yaml.DocumentStartEvent)]
    marks = [event.start_mark for event, _ in starts if event.start_mark is not None]
    ends = [mark.index - mark.column for mark in marks[1:]] + [len(text)]
    for (_, root), mark, end in zip(starts, marks, ends[: len(starts)], strict=True):
        # Many files end in a last `---`, with nothing after it.
        if not (isinstance(root, yaml.ScalarEvent) and root.implicit[0] and not root.value):
            yield "\n" * mark.line + text[mark.index - mark.column : end]


def _parsed(piece: str, source: str) -> Document:
    # First, because it refuses deep nesting, which composing would recurse into.
    value = parse_yaml(piece)
    return Document(value, source, yaml.compose(piece, Loader=yaml.CSafeLoader))


def line_of(node: yaml.Node, field: str) -> int:
    """Return the line of a field such as spec.roles[0].name, or of its closest ancestor."""
    line = node.start_mark.line
    for bracketed, plain in _STEP.findall(field):
        child = _child(node, bracketed or plain)
        if child is None:
            break
        line, node = child
    return int(line) + 1


def _child(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item.start_mark.line, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key.start_mark.line, value
    return None


def _bad(message: str) -> CliError:
    return CliError(message, exit_code=WRONG_USAGE)
