"""Bars and curves for a terminal, in plain characters."""

from collections.abc import Mapping, Sequence

BLOCKS = " ▏▎▍▌▋▊▉█"
MARKS = "ox+*#@%&"


def bar(share: float, width: int = 30) -> str:
    """Return a bar of this fraction of `width`, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")


def lines(
    xs: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_title: str,
    height: int = 12,
    top: float | None = None,
) -> str:
    """Plot several curves over the same, evenly spaced points, with a legend of their marks."""
    most = top if top is not None else max(max(ys) for ys in series.values()) or 1.0
    gap = max(6, max(len(_short(x)) for x in xs) + 2)
    rows = [[" "] * (gap * len(xs)) for _ in range(height + 1)]
    for mark, ys in zip(MARKS, series.values(), strict=False):
        for i, y in enumerate(ys):
            row = height - round(max(0.0, min(1.0, y / most)) * height)
            column = i * gap + gap // 2
            while rows[row][column] != " " and column < i * gap + gap - 1:
                column += 1
            rows[row][column] = mark
    drawn = [f"  {title}"]
    for i, cells in enumerate(rows):
        level = _short(most * (height - i) / height) if i % 3 == 0 else ""
        drawn.append(f"{level:>8} |{''.join(cells)}".rstrip())
    drawn.append(f"{'':>8} +{'-' * (gap * len(xs))}")
    drawn.append(f"{'':>8}  {''.join(_short(x).center(gap) for x in xs)} {x_title}")
    names = zip(MARKS, series, strict=False)
    drawn.append(f"{'':>10}" + "   ".join(f"{mark} {name}" for mark, name in names))
    return "\n".join(drawn)


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.3g}{letter}"
    return f"{value:.3g}"
