"""Links shared by gangs: max-min fair rates, recomputed only where something changed.

A gang moves a fixed number of bytes a step over the NICs of its nodes and the uplinks of their
leaves, so over a while it is a fluid: steps a second times bytes a step. As long as what all gangs
on a link want fits through it, each goes at its own pace. On a link that is wanted too much the
gangs get equal rates, except that nobody gets more than he wants (progressive filling). Only gangs
that are joined by such links feel each other, so a change looks no farther than that.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

Key = Hashable
# Sums of floating-point demands may exceed a full link by this much without meaning it.
SLACK = 1e-9


class Flow(NamedTuple):
    """What a gang asks of the links.

    `rate_max` is what it sends from each node when nobody is in its way, in bytes a second; each
    link carries `load` times its rate.
    """

    rate_max: float
    loads: tuple[tuple[str, float], ...]


class Fluid:
    """The state: capacities, flows, and their rates."""

    def __init__(self, capacities: Mapping[str, float]) -> None:
        self._capacity = dict(capacities)
        self._flows: dict[Key, Flow] = {}
        self._rates: dict[Key, float] = {}
        # By link: who uses it with what load, and what they want together.
        self._members: dict[str, dict[Key, float]] = {}
        self._wanted: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def rate(self, key: Key) -> float:
        """Bytes a second that the gang sends from each of its nodes."""
        return self._rates[key]

    def share(self, key: Key) -> float:
        """The part of the rate it wants that it gets."""
        wanted = self._flows[key].rate_max
        return self._rates[key] / wanted if wanted > 0.0 else 1.0

    def used(self, link: str) -> float:
        """The part of a link's capacity that is in use."""
        members = self._members.get(link)
        if not members:
            return 0.0
        carried = sum(load * self._rates[key] for key, load in members.items())
        return carried / self._capacity[link] if self._capacity[link] > 0.0 else 1.0

    def links(self) -> Iterable[str]:
        return self._capacity

    def capacity(self, link: str) -> float:
        return self._capacity[link]

    def add(self, key: Key, flow: Flow) -> list[Key]:
        """A gang begins; returns those whose rate is now another, itself first."""
        assert key not in self._flows, f"{key} flows already"
        self._flows[key] = flow
        self._rates[key] = flow.rate_max
        wanted, capacity = self._wanted, self._capacity
        tight = False
        for link, load in flow.loads:
            members = self._members.get(link)
            if members is None:
                members = self._members[link] = {}
            members[key] = load
            total = wanted.get(link, 0.0) + load * flow.rate_max
            wanted[link] = total
            if total > capacity[link] * (1.0 + SLACK):
                tight = True
        if not tight:
            return [key]
        changed = self._refill([key])
        return [key, *(other for other in changed if other != key)]

    def remove(self, key: Key) -> list[Key]:
        """A gang ends; returns the others whose rate is now another."""
        flow = self._flows.pop(key)
        del self._rates[key]
        neighbours: dict[Key, None] = {}
        for link, load in flow.loads:
            members = self._members[link]
            del members[key]
            total = self._wanted[link]
            if total > self._capacity[link] * (1.0 + SLACK):
                neighbours.update(dict.fromkeys(members))
            # An empty link begins anew, so that rounding errors do not pile up.
            self._wanted[link] = total - load * flow.rate_max if members else 0.0
        return self._refill(neighbours) if neighbours else []

    def set_capacity(self, link: str, capacity: float) -> list[Key]:
        """A link becomes slower or faster; returns the gangs whose rate is now another."""
        wanted = self._wanted.get(link, 0.0)
        was_tight = wanted > self._capacity[link] * (1.0 + SLACK)
        self._capacity[link] = capacity
        if not was_tight and wanted <= capacity * (1.0 + SLACK):
            return []
        return self._refill(self._members.get(link, {}))

    def change(self, key: Key, flow: Flow) -> list[Key]:
        """A gang wants something else; returns all whose rate is now another."""
        before = {other: self._rates[other] for other in self._neighbours([key])[0]}
        self.remove(key)
        self.add(key, flow)
        after = self._neighbours([key])[0]
        touched = dict.fromkeys([key, *before, *after])
        return [k for k in touched if k == key or before.get(k) != self._rates[k]]

    def _neighbours(self, seeds: Iterable[Key]) -> tuple[list[Key], list[str]]:
        """All gangs that are joined with these by links that are wanted too much."""
        found: dict[Key, None] = dict.fromkeys(seeds)
        links: dict[str, None] = {}
        todo = list(found)
        while todo:
            for link, _ in self._flows[todo.pop()].loads:
                if link in links or self._wanted[link] <= self._capacity[link] * (1.0 + SLACK):
                    continue
                links[link] = None
                for other in self._members[link]:
                    if other not in found:
                        found[other] = None
                        todo.append(other)
        return list(found), list(links)

    def _refill(self, seeds: Iterable[Key]) -> list[Key]:
        gangs, links = self._neighbours(seeds)
        rates = self._filled(gangs, links)
        changed = [key for key in gangs if rates[key] != self._rates[key]]
        self._rates.update(rates)
        return changed

    def _filled(self, gangs: list[Key], links: list[str]) -> dict[Key, float]:
        """Progressive filling: raise all rates together; a full link fixes those that cross it."""
        rates: dict[Key, float] = {}
        free = {link: self._capacity[link] for link in links}
        open_links = dict.fromkeys(links)
        while open_links:
            levels = {
                link: _level(
                    free[link],
                    [
                        (load, self._flows[key].rate_max)
                        for key, load in self._members[link].items()
                        if key not in rates
                    ],
                )
                for link in open_links
            }
            fullest = min(levels, key=lambda link: levels[link])
            level = levels[fullest]
            if level == float("inf"):
                break
            del open_links[fullest]
            for key in self._members[fullest]:
                if key not in rates:
                    rates[key] = min(level, self._flows[key].rate_max)
                    for link, load in self._flows[key].loads:
                        if link in free:
                            free[link] = max(0.0, free[link] - load * rates[key])
        for key in gangs:
            rates.setdefault(key, self._flows[key].rate_max)
        return rates


def _level(free: float, wants: list[tuple[float, float]]) -> float:
    """The common rate at which a link is full; infinite if all that is wanted fits."""
    rest = free
    load = sum(share for share, _ in wants)
    for share, most in sorted(wants, key=lambda want: want[1]):
        if load * most >= rest * (1.0 + SLACK):
            return rest / load
        rest -= share * most
        load -= share
    return float("inf")
