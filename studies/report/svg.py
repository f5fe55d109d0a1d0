"""Charts as SVG text: lines, stacked bars, and what all charts share. No script is needed."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from studies.report.units import duration, duration_ticks, nice_ticks, short

PALETTE = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#64748b")
# White text is not legible on these colours.
PALE = ("#dbe3ee",)
WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 14, 42


class Series(NamedTuple):
    """The points of one line; with `low` and `high`, a confidence band around it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    colour: str = ""
    filled: bool = False
    dashed: bool = False


class Frame:
    """The mapping from data to coordinates of the picture."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float, height: int = HEIGHT) -> None:
        self.x0, self.x1, self.y0, self.y1, self.height = x0, max(x1, x0 + 1e-9), y0, y1, height

    def x(self, value: float) -> float:
        share = (value - self.x0) / (self.x1 - self.x0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = (self.y1 - self.y0) or 1.0
        return self.height - BOTTOM - (value - self.y0) / span * (self.height - TOP - BOTTOM)


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    y_text: Callable[[float], str] = short,
    markers: bool = False,
    limit: tuple[float, str] | None = None,
) -> str:
    """Draw lines; `limit` is a level to mark with a line across and its name."""
    tops = [y for s in series for y in (*s.ys, *(h for h in s.high if h is not None))]
    top = max([*tops, *([limit[0]] if limit else [])], default=1.0) or 1.0
    xs = [x for s in series for x in s.xs] or [0.0, 1.0]
    ticks = duration_ticks(top) if y_text is duration else nice_ticks(0.0, top * 1.04)
    frame = Frame(min(xs), max(xs), 0.0, max(top * 1.04, ticks[-1]))
    marks = (
        x_ticks if x_ticks is not None else [(t, short(t)) for t in nice_ticks(min(xs), max(xs))]
    )
    parts = [_axes(frame, marks, [(t, y_text(t)) for t in ticks], x_label, y_label)]
    for number, each in enumerate(series):
        parts.append(_line(frame, each, each.colour or PALETTE[number % len(PALETTE)], markers))
    if limit:
        y = frame.y(limit[0])
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>'
            f'<text x="{WIDTH - RIGHT - 4}" y="{y - 5:.1f}" class="limit-name">{escape(limit[1])}</text>'
        )
    return picture("".join(parts), HEIGHT) + legend(
        [(s.name, s.colour or PALETTE[i % 8]) for i, s in enumerate(series)]
    )


def _line(frame: Frame, series: Series, colour: str, markers: bool) -> str:
    points = [(frame.x(x), frame.y(y)) for x, y in zip(series.xs, series.ys, strict=True)]
    if not points:
        return ""
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = []
    if series.low and series.high:
        parts.append(_band(frame, series, colour))
    if series.filled:
        base = frame.y(0.0)
        area = f"{path}L{points[-1][0]:.1f},{base:.1f}L{points[0][0]:.1f},{base:.1f}Z"
        parts.append(f'<path d="{area}" fill="{colour}" opacity=".13"/>')
    dash = ' stroke-dasharray="5 4"' if series.dashed else ""
    parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
    if markers:
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.6" fill="{colour}"><title>'
            f"{escape(series.name)}: {short(x)} → {duration(y)}</title></circle>"
            for (px, py), x, y in zip(points, series.xs, series.ys, strict=True)
        ]
    return "".join(parts)


def _band(frame: Frame, series: Series, colour: str) -> str:
    known = [
        (x, low, high)
        for x, low, high in zip(series.xs, series.low, series.high, strict=True)
        if low is not None and high is not None
    ]
    if len(known) < 2:
        return "".join(
            f'<line x1="{frame.x(x):.1f}" x2="{frame.x(x):.1f}" y1="{frame.y(max(0.0, low)):.1f}" '
            f'y2="{frame.y(high):.1f}" stroke="{colour}" stroke-width="6" opacity=".25"/>'
            for x, low, high in known
        )
    upper = [f"{frame.x(x):.1f},{frame.y(high):.1f}" for x, _, high in known]
    lower = [f"{frame.x(x):.1f},{frame.y(max(0.0, low)):.1f}" for x, low, _ in reversed(known)]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity=".15"/>'


def _axes(
    frame: Frame,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
) -> str:
    floor = frame.height - BOTTOM
    parts = []
    for value, text in y_ticks:
        y = frame.y(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" class="tick end">{escape(text)}</text>')
    for value, text in x_ticks:
        x = frame.x(value)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}" class="axis"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{floor + 17}" class="tick mid">{escape(text)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}" class="axis"/>')
    parts.append(
        f'<text x="{middle}" y="{frame.height - 6}" class="label mid">{escape(x_label)}</text>'
    )
    turned = f'transform="rotate(-90 14 {floor / 2:.0f})"'
    parts.append(
        f'<text x="14" y="{floor / 2:.0f}" {turned} class="label mid">{escape(y_label)}</text>'
    )
    return "".join(parts)


def stacked_bars(
    rows: Sequence[tuple[str, Sequence[float]]], parts: Sequence[tuple[str, str]]
) -> str:
    """Draw shares of 1 as one bar for each row; `parts` are names and colours."""
    height = 26 * len(rows) + 8
    drawn = []
    for number, (name, shares) in enumerate(rows):
        y, x = number * 26 + 4, 230.0
        drawn.append(f'<text x="222" y="{y + 14}" class="tick end">{escape(cut(name, 34))}</text>')
        for (part, colour), share in zip(parts, shares, strict=True):
            width = share * (WIDTH - 230 - RIGHT)
            if width > 0.3:
                text = f"{name}: {part} {100 * share:.1f} %"
                drawn.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="19" fill="{colour}">'
                    f"<title>{escape(text)}</title></rect>"
                )
                if width > 40 and colour not in PALE:
                    drawn.append(
                        f'<text x="{x + width / 2:.1f}" y="{y + 14}" class="on-bar">{100 * share:.0f} %</text>'
                    )
            x += width
    return picture("".join(drawn), height) + legend(parts)


def picture(body: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" preserveAspectRatio="xMidYMid meet">'
        f"{body}</svg>"
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    keys = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in entries
    )
    return f'<div class="legend">{keys}</div>'


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
