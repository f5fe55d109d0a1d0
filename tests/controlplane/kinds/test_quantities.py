"""Amounts as Kubernetes writes them."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.model.quantities import Quantity, parse


@pytest.mark.parametrize(
    ("given", "amount", "written"),
    [
        ("500m", Fraction(1, 2), "500m"),
        ("1000m", 1, "1"),
        ("0.5", Fraction(1, 2), "500m"),
        (2, 2, "2"),
        (0.1, Fraction(1, 10), "100m"),
        ("2Gi", 2 * 2**30, "2Gi"),
        ("1536Mi", 1536 * 2**20, "1536Mi"),
        ("2048Mi", 2**31, "2Gi"),
        ("512Ki", 2**19, "512Ki"),
        ("100Ki", 102_400, "100Ki"),
        ("2000", 2000, "2k"),
        ("1500", 1500, "1500"),
        ("1e3", 1000, "1e3"),
        ("12E6", 12_000_000, "12e6"),
        ("1E", 10**18, "1E"),
        ("0", 0, "0"),
        (".5Gi", 2**29, "512Mi"),
        ("0.1n", Fraction(1, 10**9), "1n"),
        ("-1", -1, "-1"),
    ],
)
def test_an_amount_is_exact_and_written_in_its_shortest_form(given, amount, written):
    quantity = parse(given)

    assert quantity.amount == amount
    assert str(quantity) == written


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Gi",
        "1 Gi",
        "1gi",
        "1.2.3",
        "ten",
        None,
        True,
        [],
        "1e",
        "9" * 65,
        "1Kii",
        "\u0661",
    ],
)
def test_what_is_no_amount_is_none(given):
    assert parse(given) is None


def test_a_number_without_end_is_no_amount():
    assert parse(10**5000) is None


def test_a_sum_keeps_the_spelling_of_its_first_part_that_is_not_zero():
    total = parse("0").plus(parse("1Gi")).plus(parse("544Gi").times(2))

    assert str(total) == "1089Gi"


def test_a_fraction_of_a_cpu_counts_as_a_whole_one():
    assert [parse(text).whole for text in ("500m", "2", "2500m")] == [1, 2, 3]


@given(
    st.fractions(min_value=0, max_value=10**18, max_denominator=1000),
    st.sampled_from(["decimal", "binary", "exponent"]),
)
@example(Fraction(25_000), "binary")
def test_what_is_written_reads_as_the_same_amount(amount, spelling):
    quantity = Quantity(parse("1n").amount * int(amount * 10**9), spelling)
    again = parse(str(quantity))

    whole = spelling == "binary" and quantity.amount >= 1024
    assert again.amount == (quantity.whole if whole else quantity.amount)
    # A binary amount that no suffix divides is written without one, and then reads as a decimal one.
    if spelling != "binary" or not str(quantity)[-1].isdigit():
        assert str(again) == str(quantity)
