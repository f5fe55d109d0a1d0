"""An incident as one HTML page that stands by itself: no scripts, and no request to anywhere."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from studies.analysis.values import Analysis, Group
from studies.history.views import Marks, Usage
from studies.report.style import CSS
from studies.report.svg import Series, line_chart

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MARKS_MAX = 300


class Remark(NamedTuple):
    """What a person wrote about an instant."""

    at: float
    author: str
    text: str
    about: str = ""


class Incident(NamedTuple):
    """What the page shows."""

    title: str
    analysis: Analysis
    sentences: Sequence[str]
    usage: Usage
    marks: Marks
    remarks: Sequence[Remark] = ()


def incident_page(incident: Incident) -> str:
    """Return the page."""
    analysis = incident.analysis
    when = f"{_stamp(analysis.since)} to {_stamp(analysis.until)}"
    sections = (
        _section("What happened", _list(incident.sentences)),
        _section("Annotations", _remarks(incident.remarks)),
        _section("Use of the GPUs", _use(incident.usage)),
        _section("Failures and changes, in order", _marks(incident.marks)),
        _section("By cause", _groups("Cause", analysis.by_cause)),
        _section("By node", _groups("Node", analysis.by_node)),
        _section("By user", _groups("User", analysis.by_user)),
        _section("By exit code", _groups("Exit code", analysis.by_exit_code)),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(incident.title)}</title><style>{CSS}{_MORE}</style></head><body><main>"
        f'<header><h1>{escape(incident.title)}</h1><p class="lead">{when}</p></header>'
        f"{''.join(sections)}"
        "<footer>Made by Muster from its event log. This file needs nothing else.</footer>"
        "</main></body></html>\n"
    )


# Texts are at the left here; in the tables of a study nearly all cells are numbers.
_MORE = """
td.text, th.text { text-align:left; white-space:normal }
blockquote { margin:10px 0; padding:2px 14px; border-left:3px solid var(--accent); white-space:pre-wrap }
blockquote small { color:var(--soft); display:block }
"""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="findings">{items}</ul>'


def _remarks(remarks: Sequence[Remark]) -> str:
    return "".join(_remark(each) for each in remarks)


def _remark(remark: Remark) -> str:
    head = " · ".join(
        part for part in (_stamp(remark.at), escape(remark.about), escape(remark.author)) if part
    )
    return f"<blockquote><small>{head}</small>{escape(remark.text)}</blockquote>"


def _use(usage: Usage) -> str:
    bins = len(usage.total)
    times = [(i + 0.5) * usage.bin_s for i in range(bins)]
    length = usage.bin_s * bins
    ticks = [(length * i / 6, _clock(usage.from_ + length * i / 6)) for i in range(7)]
    return line_chart(
        [
            Series("productive", times, usage.productive, filled=True, colour="#059669"),
            Series("on nodes that respond", times, _offered(usage), dashed=True, colour="#64748b"),
            Series("lost nodes", times, usage.down, colour="#dc2626"),
        ],
        x_label="time (UTC)",
        y_label="GPUs",
        x_ticks=ticks,
    )


def _offered(usage: Usage) -> list[float]:
    return [total - down for total, down in zip(usage.total, usage.down, strict=True)]


def _marks(marks: Marks) -> str:
    if not marks.items:
        return ""
    rows = "".join(
        f'<tr><td class="text">{_stamp(mark.at)}</td><td class="text">{escape(mark.job or mark.node)}'
        f'</td><td class="text">{escape(mark.message or mark.kind.value)}</td></tr>'
        for mark in marks.items[:MARKS_MAX]
    )
    return _table(("When", "What", ""), rows)


def _groups(name: str, groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    rows = "".join(
        f'<tr><td class="text">{escape(group.name.replace("_", " "))}</td><td>{group.attempts:,}</td>'
        f"<td>{group.jobs:,}</td><td>{group.gpu_hours_lost:,.2f}</td></tr>"
        for group in groups
    )
    return _table((name, "Failed attempts", "Jobs", "GPU-hours lost"), rows, numbers_from=1)


def _table(heads: Sequence[str], rows: str, *, numbers_from: int = 99) -> str:
    text = ' class="text"'
    drawn = "".join(
        f"<th{text if i < numbers_from else ''}>{escape(head)}</th>" for i, head in enumerate(heads)
    )
    return f'<div class="wide"><table><thead><tr>{drawn}</tr></thead><tbody>{rows}</tbody></table></div>'


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
