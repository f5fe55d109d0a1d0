"""Times and durations as people write and read them."""

import pytest

from cli.output.times import parse_span, parse_time, span, stamp


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (-3.0, "0s"),
        (0.4, "0s"),
        (59.9, "59s"),
        (61, "1m01s"),
        (3_599, "59m59s"),
        (3_660, "1h01m"),
        (90_000, "1d1h"),
        (86_400 * 12, "12d"),
    ],
)
def test_a_duration_is_shown_in_at_most_two_units(seconds: float | None, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1h30m", 5_400), ("1.5m", 90), ("2w", 1_209_600)],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10x", "-5m", "1h ago"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 10m"):
        parse_span(text)


def test_a_time_is_a_number_or_a_date_or_lies_before_the_end() -> None:
    assert parse_time("1700000000.5", end=0) == 1_700_000_000.5
    assert parse_time("2023-11-14T22:13:20Z", end=0) == 1_700_000_000
    assert parse_time("2023-11-14 22:13:20", end=0) == 1_700_000_000
    assert parse_time("2023-11-15T00:13:20+02:00", end=0) == 1_700_000_000
    assert parse_time("-10m", end=1_000) == 400
    with pytest.raises(ValueError, match="is not a time"):
        parse_time("yesterday", end=0)


def test_a_time_is_shown_exactly_and_odd_ones_do_no_harm() -> None:
    assert stamp(1_700_000_000.1234) == "2023-11-14T22:13:20.123Z"
    assert stamp(None) == "-"
    assert stamp(-1.0) == "-1.000"
    assert stamp(1e15) == "1000000000000000.000"
