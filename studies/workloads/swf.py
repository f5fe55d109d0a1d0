"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, ; comments.

A processor becomes a GPU. The requested number counts, or the used number where the request is
unknown; -1 means unknown.
"""

from pathlib import Path

from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import open_text
from studies.workloads.trace import BadTrace, Trace

FIELDS = 18
STATUS = {0: "failed", 1: "completed", 2: "partial", 3: "partial", 4: "partial", 5: "cancelled"}


def read_swf(path: Path) -> Trace:
    """Read a trace; raise BadTrace with the first bad line."""
    collector = Collector(path.name)
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            words = text.split()
            if words and not words[0].startswith(";"):
                _add(collector, path.name, line, words)
    return collector.trace()


def _add(collector: Collector, name: str, line: int, words: list[str]) -> None:
    if len(words) != FIELDS:
        raise BadTrace(name, line, f"has {len(words)} fields; the format has {FIELDS}")
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise BadTrace(name, line, str(error)) from None
    submitted, ran, used = numbers[1], numbers[3], numbers[4]
    asked, limit = numbers[7], numbers[8]
    processors = int(asked if asked > 0 else used)
    if submitted < 0:
        raise BadTrace(name, line, f"the time of submission is {submitted:g}")
    if processors <= 0:
        collector.leave_out("no processors")
    elif ran < 0:
        collector.leave_out("never ran")
    else:
        collector.add(
            str(int(numbers[0])), submitted, processors, ran,
            estimate=limit if limit > 0 else None,
            status=STATUS.get(int(numbers[10]), ""),
            user=_name("u", numbers[11]),
            queue=_name("q", numbers[14]),
        )  # fmt: skip


def _name(letter: str, number: float) -> str:
    return f"{letter}{int(number)}" if number >= 0 else ""
