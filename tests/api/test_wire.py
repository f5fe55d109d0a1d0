"""Bytes to documents: what is taken, and what is refused by name."""

import json
import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from api.requests.bodies import parse_document, parse_json
from api.requests.yaml_document import DEPTH_MAX, parse_yaml
from controlplane.model.errors import Rejected

YAML_VALUES = [
    ("a: 1_000", 1000),
    ("a: 0777", 0o777),
    ("a: 0x1F", 31),
    ("a: 1e3", 1000.0),
    ("a: .5", 0.5),
    ("a: -7", -7),
    ("a: yes", True),
    ("a: Off", False),
    ("a: 'yes'", "yes"),
    ("a: ~", None),
    ("a:", None),
    # To kubectl these are text, whatever older YAML readers make of them.
    ("a: 12:30:45", "12:30:45"),
    ("a: 2024-01-01", "2024-01-01"),
    ("a: =", "="),
    ("a: |\n  two\n  lines\n", "two\nlines\n"),
    ("a: [1, {b: c}]", [1, {"b": "c"}]),
]


@pytest.mark.parametrize(("text", "value"), YAML_VALUES)
def test_yaml_means_what_it_means_to_kubectl(text: str, value: object) -> None:
    assert parse_document(text.encode(), parse_yaml) == {"a": value}


def test_yaml_keys_are_text_as_written() -> None:
    assert parse_document(b"on: 1\n1: 2\n", parse_yaml) == {"on": 1, "1": 2}


@pytest.mark.parametrize("text", ["---\na: 1\n", "a: 1\n---\n", "a: 1\n...\n", "# x\n---\na: 1\n"])
def test_one_document_is_one_however_it_is_fenced(text: str) -> None:
    assert parse_document(text.encode(), parse_yaml) == {"a": 1}


REFUSED = [
    (parse_yaml, b"a: &x [1]\nb: *x", "yaml_alias"),
    (parse_yaml, b"a: *x", "yaml_alias"),
    (parse_yaml, b"<<: {a: 1}", "yaml_alias"),
    (parse_yaml, b"a: !!python/object:os.system x", "yaml_tag"),
    (parse_yaml, b"a: ! x", "yaml_tag"),
    (parse_yaml, b"a: 1\na: 2", "duplicate_key"),
    (parse_yaml, b"a: 1\n---\nb: 2", "several_documents"),
    (parse_yaml, b"a: [1", "invalid_yaml"),
    (parse_yaml, b"a: \x01", "invalid_yaml"),
    (parse_yaml, b"", "invalid_yaml"),
    (parse_yaml, b"? [a]\n: b", "invalid_yaml"),
    (parse_yaml, b"a: .nan", "not_finite"),
    (parse_yaml, b"a: -.inf", "not_finite"),
    (parse_yaml, b"a: 1e999", "not_finite"),
    (parse_yaml, b"a: " + b"9" * 5000, "not_finite"),
    (parse_yaml, b"a: 18446744073709551616", "not_finite"),
    (parse_yaml, b"[" * 65 + b"]" * 65, "too_deep"),
    (parse_yaml, b"- " * 100_000, "too_deep"),
    (parse_yaml, b"a: \xff", "invalid_utf8"),
    (parse_json, b'{"a": 1, "a": 2}', "duplicate_key"),
    (parse_json, b'{"b": {"a": 1, "a": 2}}', "duplicate_key"),
    (parse_json, b'{"a": NaN}', "not_finite"),
    (parse_json, b'{"a": -Infinity}', "not_finite"),
    (parse_json, b'{"a": 1e999}', "not_finite"),
    (parse_json, b"9" * 5000, "not_finite"),
    (parse_json, b"18446744073709551616", "not_finite"),
    (parse_json, b'{"a": 1', "invalid_json"),
    (parse_json, b"", "invalid_json"),
    (parse_json, b"{} x", "invalid_json"),
    (parse_json, b"\xef\xbb\xbf{}", "invalid_json"),
    (parse_json, b"[" * 65 + b"]" * 65, "too_deep"),
    (parse_json, b"[" * 15_000, "too_deep"),
    (parse_json, b"[" * 500_000, "too_complex"),
    (parse_json, b"[" + b"[]," * 20_000 + b"[]]", "too_complex"),
    (parse_yaml, b"- a\n" * 100_001, "too_complex"),
    (parse_json, b'{"a": "\xff"}', "invalid_utf8"),
    (parse_json, b'"\\ud800"', "invalid_utf8"),
]


@pytest.mark.parametrize(("parse", "body", "code"), REFUSED)
def test_what_could_be_read_in_two_ways_is_refused(parse, body: bytes, code: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_document(body, parse)
    assert refused.value.code == code


@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
def test_the_deepest_document_that_is_taken(parse) -> None:
    body = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert parse_document(body, parse) == json.loads(body)


BOMBS = [
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n",
    b"{a: " * 100_000,
    b"? " * 100_000,
    b"&a " * 300_000,
    b"!" * 1_000_000,
    b"%" + b"x" * 1_000_000,
    b"[" + b"'',a: " * 100_000,
]


@pytest.mark.parametrize("body", BOMBS)
def test_a_bomb_is_refused_at_once(body: bytes) -> None:
    began = time.process_time()
    with pytest.raises(Rejected) as refused:
        parse_document(body, parse_yaml)
    assert time.process_time() - began < 2.0
    assert len(refused.value.message) < 1000


def test_many_keys_with_one_twice_are_refused_without_a_search() -> None:
    keys = ",".join(f'"k{i}":0' for i in range(50_000))
    began = time.process_time()
    with pytest.raises(Rejected, match="k7"):
        parse_document(f'{{{keys},"k7":1}}'.encode(), parse_json)
    assert time.process_time() - began < 2.0


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(documents)
def test_json_comes_back_as_it_was_written(document: object) -> None:
    assert parse_document(json.dumps(document).encode(), parse_json) == document


@given(documents.map(lambda value: {"document": value}))
def test_yaml_comes_back_as_json_would(document: object) -> None:
    # JSON is YAML, but for a few characters that only JSON may spell.
    text = json.dumps(document)
    if "<<" not in text and "\\u" not in text and "\x7f" not in text:
        assert parse_document(text.encode(), parse_yaml) == document


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_refused(body: bytes) -> None:
    for parse in (parse_json, parse_yaml):
        with suppress(Rejected):
            parse_document(body, parse)


@given(st.text(max_size=40))
def test_any_yaml_that_both_readers_take_is_text_numbers_lists_and_maps(text: str) -> None:
    try:
        document = parse_document(text.encode(), parse_yaml)
    except (Rejected, UnicodeEncodeError):
        return
    assert json.loads(json.dumps(document)) == document
    yaml.safe_dump(document)
