"""Files of YAML, and mistakes that name their lines."""

from pathlib import Path

import pytest

from cli.client.documents import parse_documents, read_documents
from cli.errors import WRONG_USAGE, CliError
from controlplane.kinds.registry import read_manifest
from tests.cli.conftest import EXAMPLES

TWO = """\
# The first one.
kind: A
metadata:
  name: a
---
kind: B
spec:
  roles:
    - name: w
      replicas: 2
    - name: ps
  notes[x.y/z]: 1
---
"""


def test_every_document_of_a_file_is_read_with_its_lines() -> None:
    first, second = parse_documents(TWO, "two.yaml")
    assert first.value == {"kind": "A", "metadata": {"name": "a"}}
    assert first.where("metadata.name") == "two.yaml:4"
    assert second.where("spec.roles[0].replicas") == "two.yaml:10"
    assert second.where("spec.roles[1].gpus") == "two.yaml:11"
    assert second.where("spec.nothing.there") == "two.yaml:7"
    assert second.where("roles") == "two.yaml:6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n  c: d\n", "bad.yaml:2: mapping values are not allowed"),
        ("a: 1\n---\nb: [1\n", "bad.yaml:4"),
        ("a: &x 1\n", "line 1, column 4"),
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4, column 1: 'b' is given twice"),
        ("# nothing\n", "holds no document"),
        ("---\n---\n", "holds no document"),
        ("a: \x07\n", "bad.yaml"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_documents(text, "bad.yaml")
    assert message in caught.value.message
    assert caught.value.exit_code == WRONG_USAGE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, message in ((tmp_path / "none.yaml", "no such file"), (binary, "not UTF-8")):
        with pytest.raises(CliError, match=message):
            read_documents(str(path))


def test_scalars_mean_what_they_mean_to_the_server() -> None:
    (document,) = parse_documents("a: 12:30\nb: 2026-01-01\n", "x")
    assert document.value == {"a": "12:30", "b": "2026-01-01"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_manifest_or_a_cluster(path: Path) -> None:
    for document in read_documents(str(path)):
        if "cluster" not in path.name:
            assert read_manifest(document.value).spec.size > 0
