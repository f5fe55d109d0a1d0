"""Shared links: no flow above a full link, none below its fair share, and little work per change."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simulator.network.max_min_fair import Flow, MaxMinFair

LINKS = {"a": 10.0, "b": 4.0, "c": 7.0, "d": 1.0}
flows = st.builds(
    Flow,
    st.floats(0.1, 12.0),
    st.dictionaries(st.sampled_from(sorted(LINKS)), st.floats(0.2, 3.0), min_size=1).map(
        lambda loads: tuple(loads.items())
    ),
)


def test_a_link_with_room_lets_everyone_go_as_he_likes() -> None:
    fluid = MaxMinFair(LINKS)
    assert fluid.add("x", Flow(4.0, (("a", 1.0),))) == ["x"]
    assert fluid.add("y", Flow(6.0, (("a", 1.0),))) == ["y"]
    assert fluid.used("a") == pytest.approx(1.0)


def test_a_full_link_is_shared_equally_and_what_one_does_not_want_goes_to_the_others() -> None:
    fluid = MaxMinFair(LINKS)
    for key, most in (("x", 2.0), ("y", 9.0), ("z", 9.0)):
        fluid.add(key, Flow(most, (("a", 1.0),)))
    assert [fluid.rate(key) for key in "xyz"] == pytest.approx([2.0, 4.0, 4.0])
    assert fluid.remove("y") == ["z"]
    assert fluid.rate("z") == pytest.approx(8.0)


def test_a_gang_is_held_by_its_narrowest_link_and_leaves_the_rest_to_others() -> None:
    fluid = MaxMinFair(LINKS)
    fluid.add("x", Flow(9.0, (("a", 1.0), ("d", 1.0))))
    fluid.add("y", Flow(20.0, (("a", 1.0),)))
    assert fluid.rate("x") == pytest.approx(1.0)
    assert fluid.rate("y") == pytest.approx(9.0)


def test_a_slower_link_is_felt_and_its_repair_too() -> None:
    fluid = MaxMinFair(LINKS)
    fluid.add("x", Flow(3.0, (("b", 1.0),)))
    assert fluid.set_capacity("b", 2.0) == ["x"]
    assert fluid.share("x") == pytest.approx(2 / 3)
    assert fluid.set_capacity("b", 4.0) == ["x"]
    assert fluid.set_capacity("b", 5.0) == []


def _by_the_book(capacity: dict[str, float], wanted: dict[Any, Flow]) -> dict[Any, float]:
    """Progressive filling from scratch in small exact steps."""
    rates = dict.fromkeys(wanted, 0.0)
    growing = set(wanted)
    free = dict(capacity)
    while growing:
        use = {
            link: sum(dict(wanted[k].loads).get(link, 0.0) for k in growing) for link in capacity
        }
        room = [free[link] / use[link] for link in capacity if use[link] > 0]
        grow = min([*room, *(wanted[k].rate_max - rates[k] for k in growing)])
        for key in growing:
            rates[key] += grow
        for link in capacity:
            free[link] -= use[link] * grow
        full = {link for link in capacity if use[link] > 0 and free[link] <= 1e-9 * capacity[link]}
        growing -= {
            key
            for key in growing
            if rates[key] >= wanted[key].rate_max * (1 - 1e-12)
            or any(link in full for link, _ in wanted[key].loads)
        }
    return rates


class Changes(RuleBasedStateMachine):
    """Gangs come and go and links change; the rates are always those of filling from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.fluid = MaxMinFair(LINKS)
        self.capacity = dict(LINKS)
        self.wanted: dict[int, Flow] = {}
        self.next = 0

    def _check_changes(self, before: dict[int, float], changed: list[Any]) -> None:
        for key in self.wanted:
            if key not in changed and key in before:
                assert self.fluid.rate(key) == before[key]

    def _rates(self) -> dict[int, float]:
        return {key: self.fluid.rate(key) for key in self.wanted}

    @rule(flow=flows)
    def begin(self, flow: Flow) -> None:
        before = self._rates()
        self.wanted[self.next] = flow
        self._check_changes(before, self.fluid.add(self.next, flow))
        self.next += 1

    @rule(which=st.integers(0, 50))
    def end(self, which: int) -> None:
        if self.wanted:
            key = sorted(self.wanted)[which % len(self.wanted)]
            del self.wanted[key]
            before = self._rates()
            self._check_changes(before, self.fluid.remove(key))

    @rule(which=st.integers(0, 50), flow=flows)
    def want_another(self, which: int, flow: Flow) -> None:
        if self.wanted:
            key = sorted(self.wanted)[which % len(self.wanted)]
            before = self._rates()
            self.wanted[key] = flow
            self._check_changes(before, self.fluid.change(key, flow))

    @rule(link=st.sampled_from(sorted(LINKS)), capacity=st.floats(0.1, 20.0))
    def repair(self, link: str, capacity: float) -> None:
        before = self._rates()
        self.capacity[link] = capacity
        self._check_changes(before, self.fluid.set_capacity(link, capacity))

    @invariant()
    def fair(self) -> None:
        expected = _by_the_book(self.capacity, self.wanted)
        for key, rate in expected.items():
            assert self.fluid.rate(key) == pytest.approx(rate, rel=1e-6)
        for link in LINKS:
            assert self.fluid.used(link) <= 1.0 + 1e-6


TestChanges = Changes.TestCase


@given(st.lists(flows, max_size=8))
def test_order_does_not_matter(wanted: list[Flow]) -> None:
    one, other = MaxMinFair(LINKS), MaxMinFair(LINKS)
    for i, flow in enumerate(wanted):
        one.add(i, flow)
    for i, flow in reversed(list(enumerate(wanted))):
        other.add(i, flow)
    for i in range(len(wanted)):
        assert one.rate(i) == pytest.approx(other.rate(i), rel=1e-9)
