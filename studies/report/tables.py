"""The tables of the page."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from studies.report.units import duration, money, percent, short

# Measure, heading, formatter, and whether a smaller value is better.
COLUMNS: tuple[tuple[str, str, Callable[[float | None], str], bool], ...] = (
    ("wait_p50_s", "median wait", duration, True),
    ("wait_p90_s", "p90 wait", duration, True),
    ("jct_mean_s", "mean completion", duration, True),
    ("slowdown_mean", "slowdown", short, True),
    ("occupancy", "occupancy", percent, False),
    ("productive", "productive", percent, False),
    ("restarts", "restarts", short, True),
    ("cost", "cost", money, True),
    ("cost_per_finished_job", "cost a job", money, True),
)


def comparison_table(result: dict[str, Any]) -> str:
    scenarios = result["scenarios"]
    columns = [
        column
        for column in COLUMNS
        if column[0] not in ("restarts", "cost", "cost_per_finished_job")
        or any(s["measures"][column[0]]["mean"] for s in scenarios)
    ]
    head = "".join(f"<th>{escape(title)}</th>" for _, title, _, _ in columns)
    rows = []
    for number, entry in enumerate(scenarios):
        cells = "".join(_cell(entry, *column) for column in columns)
        kind = ' class="base"' if number == 0 and len(scenarios) > 1 else ""
        rows.append(f"<tr{kind}><td>{escape(entry['name'])}</td>{cells}</tr>")
    return _table(f"<th>scenario</th>{head}", rows)


def _cell(
    entry: dict[str, Any],
    name: str,
    title: str,
    text_of: Callable[[float | None], str],
    less_is_better: bool,
) -> str:
    value = entry["measures"][name]
    text = text_of(value["mean"])
    small = []
    if value["low"] is not None:
        # No measure is negative and no share is above 1, but a symmetrical interval may be.
        high = min(1.0, value["high"]) if text_of is percent else value["high"]
        small.append(f"{text_of(max(0.0, value['low']))} to {text_of(high)}")
    difference = entry.get("against_base", {}).get(name)
    kind = ""
    if difference is not None and difference["relative"] is not None:
        small.append(f"{100 * difference['relative']:+.0f} %")
        if difference["clear"]:
            is_better = (difference["mean"] < 0) == less_is_better
            kind = f' class="{"better" if is_better else "worse"}"'
    below = "".join(f"<small>{escape(each)}</small>" for each in small)
    return f"<td{kind}>{escape(text)}{below}</td>"


def group_table(summary: dict[str, Any]) -> str:
    drawn = []
    for key, title in (("by_size", "GPUs"), ("by_user", "user"), ("by_queue", "queue")):
        groups = summary[key][:12]
        if groups:
            drawn.append(_groups(title, groups))
    return "".join(drawn)


def _groups(title: str, groups: Sequence[dict[str, Any]]) -> str:
    head = "".join(
        f"<th>{each}</th>"
        for each in (title, "jobs", "GPU-hours", "median wait", "p90 wait", "p99 wait", "mean JCT")
    )
    rows = [
        f"<tr><td>{escape(group['name'] or '(none)')}</td><td>{group['jobs']:,}</td>"
        f"<td>{short(group['gpu_hours'])}</td><td>{duration(group['wait_s']['p50'])}</td>"
        f"<td>{duration(group['wait_s']['p90'])}</td><td>{duration(group['wait_s']['p99'])}</td>"
        f"<td>{duration(group['jct_s']['mean'])}</td></tr>"
        for group in groups
        if group["jobs"]
    ]
    return _table(head, rows)


def waits_table(summary: dict[str, Any]) -> str:
    head = (
        '<th>job</th><th>GPUs</th><th>submitted at</th><th>waited</th><th class="left">reasons</th>'
    )
    rows = [
        f"<tr><td>{escape(job['id'])}</td><td>{job['gpus']:,}</td>"
        f"<td>{duration(job['submitted_s'])}</td>"
        f"<td>{duration(job['wait_s'])}{'' if job['started'] else ' so far'}</td>"
        f'<td class="left">{escape(_reasons(job["reasons_s"]))}</td></tr>'
        for job in summary["longest_waits"][:10]
    ]
    return _table(head, rows) if rows else "<p>No job waited.</p>"


def _reasons(reasons: dict[str, float]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return ", ".join(f"{code.replace('_', ' ')} {duration(s)}" for code, s in ordered)


def refused_table(scenarios: Sequence[dict[str, Any]]) -> str:
    refused = [s for s in scenarios if s["replication_0"]["refused"]]
    if not refused:
        return ""
    rows = [
        f"<tr><td>{escape(s['name'])}</td><td>{s['replication_0']['refused']:,}</td>"
        f'<td class="left">{escape(s["replication_0"]["refused_examples"][0]["why"])}</td></tr>'
        for s in refused
    ]
    head = '<th>scenario</th><th>refused</th><th class="left">for example</th>'
    return (
        "<section><h2>Jobs that can never run</h2><p>They are larger than the whole cluster, or than"
        f" their queue may hold.</p>{_table(head, rows)}</section>"
    )


def _table(head: str, rows: Sequence[str]) -> str:
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
