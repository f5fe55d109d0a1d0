"""The chain of a whole page: right as a whole, or not believed."""

from hashlib import sha256

import pytest
from msgspec.structs import asdict, replace

from controlplane import codec
from controlplane import events as e
from controlplane.chain import follows, page_of
from controlplane.page import HASH_BYTES, Page

EVENTS = [
    e.Recorded(1, 1.7e9, e.EngineStarted(1, "0.1.0"), "", ""),
    e.Recorded(2, 1.7e9, e.NodeLost("a\\nb", "line\rbreaks \x85 and \u2028"), "c\t1\\", "ann\r"),
    e.Recorded(3, 1700001605.2713017, e.JobSucceeded('j"1\\'), "\u2028c2", "søren"),
]
ROWS = codec.to_rows(EVENTS, codec.GENESIS)


def page_of_rows() -> Page:
    page = page_of(ROWS)
    assert page is not None
    return page


def test_a_page_of_what_was_written_follows():
    page = page_of_rows()
    assert follows(page, codec.GENESIS)
    assert page.last == 3
    assert page.hash == ROWS[-1][8]
    assert page.payloads.split(b"\n") == [row[5] for row in ROWS]


def test_a_part_of_the_log_follows_the_hash_before_it_and_no_other():
    page = page_of(ROWS[1:])
    assert page is not None
    assert follows(page, ROWS[0][8])
    assert not follows(page, codec.GENESIS)


@pytest.mark.parametrize("character", [chr(n) for n in range(160) if n != ord("\n")])
def test_any_character_is_hashed_as_it_was_written(character):
    stream = f"{character}n{character}"
    lost = e.NodeLost(stream, character)
    rows = codec.to_rows([e.Recorded(n, 2.5, lost, stream, stream) for n in (1, 2)], bytes(32))
    page = page_of(rows)
    assert page is not None
    assert follows(page, bytes(32))


@pytest.mark.parametrize("at", [0.0, -0.0, 1e-7, 5e-324, 1e22, 1.7976931348623157e308, 123])
def test_any_time_is_hashed_as_it_was_written(at):
    rows = codec.to_rows([e.Recorded(n, at, e.JobSucceeded("j")) for n in (1, 2)], bytes(32))
    page = page_of(rows)
    assert page is not None
    assert follows(page, bytes(32))


def test_a_line_break_in_a_value_makes_no_rows():
    for event in (e.NodeLost("a\nb"), e.NodeLost("a")):
        recorded = e.Recorded(1, 1.7e9, event, "", "" if "\n" in event.node else "two\nlines")
        page = page_of(codec.to_rows([recorded], codec.GENESIS))
        assert page is not None
        assert not follows(page, codec.GENESIS)


OTHER = {
    "ats": 1.7e9 + 1,
    "streams": "else",
    "types": "JobFailed",
    "versions": 2,
    "payloads": b"{}",
    "causes": "c3",
    "actors": "bob",
    "hashes": bytes(32),
}


def values_of(page: Page, column: str) -> list[object]:
    values = asdict(page)[column]
    if column == "hashes":
        return [values[at : at + HASH_BYTES] for at in range(0, len(values), HASH_BYTES + 1)]
    return list(values.split(_end(column)) if isinstance(values, str | bytes) else values)


def with_values(page: Page, column: str, values: list[object]) -> Page:
    texts = {str: "\n".join, bytes: (b"," if column == "hashes" else b"\n").join}
    join = texts.get(type(asdict(page)[column]), list)
    return replace(page, **{column: join(values)})


def _end(column: str) -> str | bytes:
    return b"\n" if column == "payloads" else "\n"


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("column", OTHER)
def test_no_changed_value_is_believed(column, row):
    page = page_of_rows()
    changed = values_of(page, column)
    assert with_values(page, column, changed) == page
    changed[row] = OTHER[column]
    assert not follows(with_values(page, column, changed), codec.GENESIS)


@pytest.mark.parametrize("column", OTHER)
def test_columns_that_do_not_match_are_not_believed(column):
    page = page_of_rows()
    values = values_of(page, column)
    for uneven in (values[:-1], [*values, values[-1]], []):
        assert not follows(with_values(page, column, uneven), codec.GENESIS)


@pytest.mark.parametrize("column", OTHER)
@pytest.mark.parametrize(
    "nonsense", [None, 3, 1.5, "", b"", [], [None], ["\ud800"], "\ud800", object()]
)
def test_no_nonsense_is_believed(column, nonsense):
    assert not follows(replace(page_of_rows(), **{column: nonsense}), codec.GENESIS)


def test_times_that_repeat_are_hashed_at_every_row():
    at, other = 1700001605.2713017, 1700001605.5
    for ats in ([at] * 5, [at, at, other, other, at], [at, other, at, at, other]):
        batch = [e.Recorded(n, x, e.JobSucceeded("j")) for n, x in enumerate(ats, start=1)]
        page = page_of(codec.to_rows(batch, codec.GENESIS))
        assert page is not None
        # The same object, and another one of the same value.
        for same in (ats, [float(str(x)) for x in ats]):
            assert follows(replace(page, ats=same), codec.GENESIS)
            for row in range(5):
                changed = [at + 1 if i == row else x for i, x in enumerate(same)]
                assert not follows(replace(page, ats=changed), codec.GENESIS)


def test_a_comma_within_a_value_does_not_end_it():
    payload = b'{"job":"j"}'
    text = bytes(32) + b'[1,1.5,"j","JobSucceeded","1,"",""]' + payload
    page = Page(
        0, [1.5], ["1,2"], "j", "JobSucceeded", payload, "", "", sha256(text).digest()
    )  # fmt: skip
    assert not follows(page, bytes(32))


def test_nothing_but_a_comma_stands_between_hashes():
    page = page_of_rows()
    for between in (b"", b";", b",,"):
        hashes = between.join([row[8] for row in ROWS])
        assert not follows(replace(page, hashes=hashes), codec.GENESIS)


@pytest.mark.parametrize("after", [1, -1, -5, 2**63 - 1, 2**63 - 4, 2**64, -(2**70)])
def test_a_page_elsewhere_is_not_believed(after):
    assert not follows(replace(page_of_rows(), after=after), codec.GENESIS)


@pytest.mark.parametrize("previous", [b"", bytes(31), bytes(33), bytes(100_000)])
def test_a_page_behind_anything_else_is_not_believed(previous):
    assert not follows(page_of_rows(), previous)


def test_a_large_row_and_a_large_position_are_no_other_case():
    recorded = e.Recorded(10**15, 1.7e9, e.NodeLost("n", "x" * 3_000_000), "c", "a" * 70_000)
    page = page_of(codec.to_rows([recorded], codec.GENESIS))
    assert page is not None
    assert follows(page, codec.GENESIS)


def test_rows_with_a_gap_make_no_page():
    assert page_of([ROWS[0], ROWS[2]]) is None
    assert page_of([ROWS[1], ROWS[0]]) is None


@pytest.mark.parametrize("field", [2, 3, 5, 6, 7, 8])
@pytest.mark.parametrize("value", [None, 3, 1.5, [1]])
def test_rows_of_other_types_make_no_page(field, value):
    row = (*ROWS[1][:field], value, *ROWS[1][field + 1 :])
    assert page_of([ROWS[0], row, ROWS[2]]) is None


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_rows_with_hashes_of_other_lengths_make_no_page(size):
    assert page_of([(*ROWS[0][:8], bytes(size)), ROWS[1]]) is None
