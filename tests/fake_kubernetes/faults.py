"""What goes wrong on the way to an API server, by chance from a seed or one after the other."""

from collections import Counter, deque
from random import Random

# Each with what it does to a request: answers an error, takes long, or cuts the connection before
# or after the request was carried out.
STATUSES = (409, 410, 429, 500, 504)
DELAY, CUT_BEFORE, CUT_AFTER = "delay", "cut before", "cut after"
KINDS: tuple[int | str, ...] = (*STATUSES, DELAY, CUT_BEFORE, CUT_AFTER)


class Faults:
    """`rate` of requests meet a fault of `kinds`; `dropped` of watch events never arrive.

    A 409 or 410 is only answered where a server may: 410 to a list or a watch, 409 to a write.
    """

    def __init__(
        self,
        rate: float = 0.0,
        *,
        seed: int = 0,
        kinds: tuple[int | str, ...] = KINDS,
        dropped: float = 0.0,
        delay_s: float = 0.02,
    ) -> None:
        self.rate = rate
        self.kinds = kinds
        self.dropped = dropped
        self.delay_s = delay_s
        # Faults that the next requests meet for certain, whatever the rate.
        self.next: deque[int | str] = deque()
        self.met: Counter[int | str] = Counter()
        self._dice = Random(seed)

    def of_request(self, method: str) -> int | str | None:
        fault = self._fault()
        if fault == 410 and method != "GET":
            fault = 500
        if fault == 409 and method == "GET":
            fault = 500
        if fault is not None:
            self.met[fault] += 1
        return fault

    def _fault(self) -> int | str | None:
        if self.next:
            return self.next.popleft()
        if self._dice.random() < self.rate:
            return self._dice.choice(self.kinds)
        return None

    def drops_event(self) -> bool:
        is_dropped = self._dice.random() < self.dropped
        self.met["dropped"] += is_dropped
        return is_dropped
