"""The chain of a whole page: right as a whole, or not believed."""

import pytest
from msgspec.structs import asdict, replace

from controlplane import codec
from controlplane import events as e
from controlplane.chain import follows, page_of

EVENTS = [
    e.Recorded(1, 1.7e9, e.EngineStarted(1, "0.1.0"), "", ""),
    e.Recorded(2, 1.7e9, e.NodeLost("a\nb", "line\rbreaks \x85 and \u2028"), "c1", "ann"),
    e.Recorded(3, 1700001605.2713017, e.JobSucceeded('j"1\\'), "c2", "søren"),
]
ROWS = codec.to_rows(EVENTS, codec.GENESIS)


def test_a_page_of_what_was_written_follows():
    page = page_of(ROWS)
    assert page is not None
    assert follows(page, codec.GENESIS)
    assert page.last == 3
    assert [bytes(payload) for payload in page.payloads] == [row[5] for row in ROWS]


def test_a_part_of_the_log_follows_the_hash_before_it_and_no_other():
    page = page_of(ROWS[1:])
    assert page is not None
    assert follows(page, ROWS[0][8])
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


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("column", OTHER)
def test_no_changed_value_is_believed(column, row):
    page = page_of(ROWS)
    assert page is not None
    changed = list(asdict(page)[column])
    changed[row] = OTHER[column]
    assert not follows(replace(page, **{column: changed}), codec.GENESIS)


@pytest.mark.parametrize("column", OTHER)
def test_columns_that_do_not_match_are_not_believed(column):
    page = page_of(ROWS)
    assert page is not None
    values = asdict(page)[column]
    for uneven in (values[:-1], [*values, values[-1]]):
        assert not follows(replace(page, **{column: uneven}), codec.GENESIS)


def test_a_page_elsewhere_is_not_believed():
    page = page_of(ROWS)
    assert page is not None
    assert not follows(replace(page, after=1), codec.GENESIS)


def test_rows_with_a_gap_make_no_page():
    assert page_of([ROWS[0], ROWS[2]]) is None
    assert page_of([ROWS[1], ROWS[0]]) is None
