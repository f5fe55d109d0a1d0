"""Links shared by gangs: max-min fair rates, recomputed only where something changed.

A gang moves a fixed number of bytes per step over the NICs of its nodes and the uplinks of their
leaves, so over time its traffic is a flow: steps a second times bytes a step. While the demands of
all gangs on a link fit, each gets its demand. On an overloaded link the gangs get equal rates, but
none gets more than its demand (progressive filling; Bertsekas and Gallager, "Data Networks", 6.5).
Only gangs that are connected by overloaded links affect each other, so a change is propagated no
farther than that.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

Key = Hashable
# Tolerance for rounding in sums of demands on a full link.
SLACK = 1e-9


class Flow(NamedTuple):
    """The demand of a gang.

    `rate_max` is what each of its nodes sends without other traffic, in bytes a second; each link
    carries `load` times the gang's rate.
    """

    rate_max: float
    loads: tuple[tuple[str, float], ...]


class MaxMinFair:
    """Capacities, flows, and their max-min fair rates."""

    def __init__(self, capacities: Mapping[str, float]) -> None:
        self._capacity = dict(capacities)
        self._flows: dict[Key, Flow] = {}
        self._rates: dict[Key, float] = {}
        # By link: the gangs on it with their loads, and their total demand.
        self._members: dict[str, dict[Key, float]] = {}
        self._wanted: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def rate(self, key: Key) -> float:
        """Return the bytes a second that each node of the gang sends."""
        return self._rates[key]

    def share(self, key: Key) -> float:
        """Return the fraction of its demand that the gang gets."""
        wanted = self._flows[key].rate_max
        return self._rates[key] / wanted if wanted > 0.0 else 1.0

    def used(self, link: str) -> float:
        """Return the fraction of a link's capacity that is in use."""
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
        """Add a gang; return the gangs whose rate changed, this one first."""
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
        """Remove a gang; return the other gangs whose rate changed."""
        flow = self._flows.pop(key)
        del self._rates[key]
        neighbours: dict[Key, None] = {}
        for link, load in flow.loads:
            members = self._members[link]
            del members[key]
            total = self._wanted[link]
            if total > self._capacity[link] * (1.0 + SLACK):
                neighbours.update(dict.fromkeys(members))
            # An empty link is reset, so that rounding errors do not accumulate.
            self._wanted[link] = total - load * flow.rate_max if members else 0.0
        return self._refill(neighbours) if neighbours else []

    def set_capacity(self, link: str, capacity: float) -> list[Key]:
        """Change the capacity of a link; return the gangs whose rate changed."""
        wanted = self._wanted.get(link, 0.0)
        was_tight = wanted > self._capacity[link] * (1.0 + SLACK)
        self._capacity[link] = capacity
        if not was_tight and wanted <= capacity * (1.0 + SLACK):
            return []
        return self._refill(self._members.get(link, {}))

    def change(self, key: Key, flow: Flow) -> list[Key]:
        """Change the demand of a gang; return all gangs whose rate changed."""
        before = {other: self._rates[other] for other in self._neighbours([key])[0]}
        self.remove(key)
        self.add(key, flow)
        after = self._neighbours([key])[0]
        touched = dict.fromkeys([key, *before, *after])
        return [k for k in touched if k == key or before.get(k) != self._rates[k]]

    def _neighbours(self, seeds: Iterable[Key]) -> tuple[list[Key], list[str]]:
        """Return all gangs connected with these by overloaded links, and those links."""
        gangs: dict[Key, None] = dict.fromkeys(seeds)
        links: dict[str, None] = {}
        todo = list(gangs)
        while todo:
            for link, _ in self._flows[todo.pop()].loads:
                if link in links or self._wanted[link] <= self._capacity[link] * (1.0 + SLACK):
                    continue
                links[link] = None
                for other in self._members[link]:
                    if other not in gangs:
                        gangs[other] = None
                        todo.append(other)
        return list(gangs), list(links)

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
    """Return the common rate at which a link is full; infinite if all demands fit."""
    rest = free
    load = sum(share for share, _ in wants)
    for share, most in sorted(wants, key=lambda want: want[1]):
        if load * most >= rest * (1.0 + SLACK):
            return rest / load
        rest -= share * most
        load -= share
    return float("inf")
