"""Charts of places and times: a heat map of nodes, a Gantt chart of jobs."""

from collections.abc import Sequence
from html import escape

from studies.report.svg import BOTTOM, LEFT, RIGHT, WIDTH, Frame, cut, legend, picture
from studies.report.units import duration, nice_ticks, time_ticks


def heat_map(
    rows: Sequence[Sequence[float]], names: Sequence[str], bin_s: float, *, title: str
) -> str:
    """Draw shares from 0 to 1, with one row for each node or group of nodes, and time to the right."""
    cell_h = max(3, min(14, 420 // max(1, len(rows))))
    height = cell_h * len(rows) + BOTTOM
    width = WIDTH - LEFT - RIGHT
    columns = max(len(row) for row in rows)
    step = width / columns
    drawn = []
    for r, row in enumerate(rows):
        start = 0
        while start < len(row):
            level = round(row[start] * 12)
            end = start
            while end < len(row) and round(row[end] * 12) == level:
                end += 1
            if level:
                drawn.append(
                    f'<rect x="{LEFT + start * step:.1f}" y="{r * cell_h}" '
                    f'width="{(end - start) * step + 0.2:.1f}" height="{cell_h - 0.4:.1f}" '
                    f'fill="{_heat(level / 12)}"/>'
                )
            start = end
    every = max(1, len(rows) // 12)
    for r in range(0, len(rows), every):
        short_name = cut(names[r].split(" to ")[0], 12)
        drawn.append(
            f'<text x="{LEFT - 6}" y="{r * cell_h + min(cell_h, 10)}" class="tick end">{escape(short_name)}</text>'
        )
    frame = Frame(0.0, bin_s * columns, 0.0, 1.0, height)
    drawn += [
        f'<text x="{frame.x(at):.1f}" y="{height - 24}" class="tick mid">{duration(at)}</text>'
        for at in time_ticks(bin_s * columns)
    ]
    drawn.append(f'<text x="{WIDTH / 2}" y="{height - 6}" class="label mid">{escape(title)}</text>')
    return picture("".join(drawn), height)


def _heat(level: float) -> str:
    """Return a colour from pale (0) to deep blue (1)."""
    low, high = (224, 236, 254), (23, 60, 150)
    mixed = [round(a + (b - a) * level) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{c:02x}" for c in mixed)


def gantt(bars: Sequence[Sequence[object]], begin: float, length: float) -> str:
    """Draw attempts as bars in lanes, coloured by their number of GPUs.

    The wait before an attempt is a thin pale line.
    """
    lanes: list[float] = []
    drawn = []
    frame = Frame(begin, begin + length, 0.0, 1.0)
    lane_h = 9
    for bar in bars:
        name, gpus, submit, start, end, outcome = bar
        assert isinstance(submit, int | float)
        assert isinstance(start, int | float)
        assert isinstance(end, int | float)
        first = max(begin, min(submit, start))
        lane = next((i for i, free in enumerate(lanes) if free <= first), len(lanes))
        if lane == len(lanes):
            lanes.append(0.0)
        lanes[lane] = min(end, begin + length) + length / 400
        y = lane * lane_h
        x0, x1 = frame.x(max(begin, start)), frame.x(min(begin + length, end))
        text = f"job {name}: {gpus} GPUs, waited {duration(start - submit)}, ran {duration(end - start)}"
        if start > first:
            drawn.append(
                f'<rect x="{frame.x(first):.1f}" y="{y + 3}" width="{frame.x(start) - frame.x(first):.1f}" '
                f'height="2" class="waited"><title>{escape(text)}</title></rect>'
            )
        colour = "#dc2626" if outcome in (2, 3) else _size_colour(float(str(gpus)))
        drawn.append(
            f'<rect x="{x0:.1f}" y="{y}" width="{max(0.8, x1 - x0):.1f}" height="{lane_h - 1.5}" '
            f'fill="{colour}"><title>{escape(text)}</title></rect>'
        )
    height = max(60, lane_h * len(lanes) + BOTTOM)
    drawn += [
        f'<text x="{frame.x(begin + at):.1f}" y="{height - 22}" class="tick mid">{duration(begin + at)}</text>'
        for at in nice_ticks(0, length, 6)
    ]
    drawn.append(
        f'<text x="{WIDTH / 2}" y="{height - 5}" class="label mid">time since the first submission</text>'
    )
    keys = [(name, colour) for _, name, colour in _SIZE_COLOURS]
    return picture("".join(drawn), height) + legend(
        [*keys, ("stopped and started again", "#dc2626")]
    )


_SIZE_COLOURS = (
    (1, "1 GPU", "#93c5fd"),
    (8, "2 to 8 GPUs", "#3b82f6"),
    (63, "9 to 63", "#1d4ed8"),
    (10**9, "64 and more", "#172554"),
)


def _size_colour(gpus: float) -> str:
    return next(colour for most, _, colour in _SIZE_COLOURS if gpus <= most)
