"""Diagrams of a validation as SVG, written without a library so that they have no dependencies."""

from collections.abc import Sequence
from html import escape
from math import log10

from simulator.validation.scores import Scored, Validation

WIDTH, HEIGHT, MARGIN = 640, 440, 60
COLOURS = ("#1b6ca8", "#c1440e", "#3a7d44", "#7b4b94", "#b8860b", "#444444")


def draw_validation(validation: Validation) -> dict[str, str]:
    """Return file name -> SVG: predicted against measured, and errors by group."""
    pictures = {}
    for kind, name, title in (
        ("train", "training.svg", "Training throughput"),
        ("allreduce", "allreduce.svg", "All-reduce time"),
        ("llm_iter", "llm.svg", "LLM iteration time"),
    ):
        points = [point for point in validation.points if point.kind == kind]
        if points:
            pictures[name] = _scatter(points, title)
    pictures["errors.svg"] = _errors(validation)
    return pictures


def _scatter(points: Sequence[Scored], title: str) -> str:
    values = [v for p in points for v in (p.measured, p.predicted) if v > 0]
    low, high = log10(min(values)), log10(max(values))
    room = max(high - low, 1e-9)

    def x(value: float) -> float:
        return MARGIN + (log10(value) - low) / room * (WIDTH - 2 * MARGIN)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (log10(value) - low) / room * (HEIGHT - 2 * MARGIN)

    ends = (10**low, 10**high)
    systems = list(dict.fromkeys(point.system for point in points))
    body = [
        _line(x(ends[0]), y(ends[0]), x(ends[1]), y(ends[1]), "#999"),
        *(
            f'<circle cx="{x(p.measured):.1f}" cy="{y(p.predicted):.1f}" r="3.2" '
            f'fill="{COLOURS[systems.index(p.system) % len(COLOURS)]}" fill-opacity="0.65">'
            f"<title>{escape(p.id)} {escape(p.series)}: {100 * p.error:+.1f} %</title></circle>"
            for p in points
        ),
        *(
            _text(x(10.0**d), HEIGHT - MARGIN + 18, f"1e{d}")
            for d in range(int(low) + 1, int(high) + 1)
        ),
        *(_text(MARGIN - 22, y(10.0**d) + 4, f"1e{d}") for d in range(int(low) + 1, int(high) + 1)),
        _text(WIDTH / 2, HEIGHT - 12, f"measured ({points[0].unit})"),
        f'<text x="16" y="{HEIGHT / 2:.0f}" transform="rotate(-90 16 {HEIGHT / 2:.0f})" '
        f'text-anchor="middle">predicted</text>',
    ]
    return _svg(title, body)


def _errors(validation: Validation) -> str:
    """Draw a strip of signed errors per group, with the mean of their absolute values."""
    names = list(validation.groups)
    body = [_line(_error_x(0), 50, _error_x(0), HEIGHT - 40, "#999")]
    body += [_text(_error_x(p), HEIGHT - 20, f"{p:+d} %") for p in (-40, -20, 0, 20, 40)]
    for row, name in enumerate(names):
        y = 64 + row * (HEIGHT - 110) / max(1, len(names) - 1)
        body.append(f'<text x="8" y="{y + 4:.1f}" font-size="11">{escape(name)}</text>')
        for point in validation.points:
            if name in point.groups:
                x = _error_x(max(-50.0, min(50.0, 100.0 * point.error)))
                body.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{COLOURS[row % 6]}" '
                    f'fill-opacity="0.5"/>'
                )
        label = f"MAPE {validation.groups[name].mape:.1f} %"
        body.append(f'<text x="{WIDTH - 88}" y="{y + 4:.1f}" font-size="11">{label}</text>')
    return _svg("Errors by group (cut at 50 %)", body)


def _error_x(percent: float) -> float:
    left, right = 210.0, WIDTH - 100.0
    return left + (percent + 50.0) / 100.0 * (right - left)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _svg(title: str, body: Sequence[str]) -> str:
    inner = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        f'<text x="{WIDTH / 2:.0f}" y="28" text-anchor="middle" font-size="16">{escape(title)}'
        f"</text>\n{inner}\n</svg>\n"
    )
