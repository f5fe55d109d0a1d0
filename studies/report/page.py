"""The result of a study as one HTML page: findings first, then their certainty, then the details."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from studies.metrics.goodput import PARTS
from studies.report import maps, svg
from studies.report.findings import findings
from studies.report.style import CSS
from studies.report.tables import comparison_table, group_table, refused_table, waits_table
from studies.report.units import duration, money, percent, short, some, time_ticks

SHOWN_MAX = 8

PART_COLOURS = {
    "productive": ("productive", "#059669"),
    "checkpointing": ("writing checkpoints", "#84cc16"),
    "start_up": ("start-up", "#0ea5e9"),
    "lost": ("lost to restarts", "#dc2626"),
    "held_idle": ("allocated, but idle", "#f59e0b"),
    "fragmented": ("blocked by fragmentation", "#9333ea"),
    "reserved": ("free, but too few for the next job", "#a8a29e"),
    "idle": ("free, no job waiting", "#dbe3ee"),
    "down": ("down or not rented", "#475569"),
}


def page(result: dict[str, Any], *, title: str = "What if") -> str:
    """Return the HTML page for the result document of a study."""
    scenarios: list[dict[str, Any]] = result["scenarios"]
    sections = [
        _cards(scenarios[0]),
        _section("Findings", "", _list(findings(result))),
        _section(
            "Comparison of the scenarios",
            _how_sure(result["replications"]),
            comparison_table(result),
        ),
        _capacity(result),
        _section(
            "Where the GPU time went",
            "Every GPU-second of the study is in exactly one of these parts.",
            _goodput(scenarios),
        ),
        _section(
            "Use over time",
            "GPUs in use, GPUs on schedulable nodes, and GPUs that waiting jobs request"
            + (", in the first replication." if result["replications"] > 1 else "."),
            _tabs("use", scenarios, _use),
        ),
        _waiting(scenarios),
        _nodes(scenarios),
        _section(
            "Gantt chart",
            "A part of the study. Each bar is one attempt of a job; the thin line before it is its wait.",
            _tabs("gantt", scenarios, _gantt),
        ),
        _section(
            "Longest waits",
            "The jobs that waited longest, with the reasons if the study recorded them.",
            _tabs("longest", scenarios, lambda s: waits_table(s["replication_0"])),
        ),
        refused_table(scenarios),
        _limits(result),
    ]
    body = "".join(section for section in sections if section)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}{_tab_rules(len(scenarios))}</style></head>"
        f"<body><main><header><h1>{escape(title)}</h1>{_lead(result)}</header>{body}"
        "<footer>Made by Muster: its control plane and scheduler ran in virtual time. All numbers "
        "are in result.json next to this page.</footer></main></body></html>\n"
    )


def _lead(result: dict[str, Any]) -> str:
    first = result["scenarios"][0]
    summary, workload = first["replication_0"], first["scenario"]["workload"]
    name = workload["path"].rsplit("/", 1)[-1]
    text = f"{summary['jobs']:,} jobs of {name}"
    count = len(result["scenarios"])
    runs = count * result["replications"]
    return f'<p class="lead">{escape(text)} · {some(count, "scenario")} · {some(runs, "run")}</p>'


def _cards(base: dict[str, Any]) -> str:
    m = {name: value["mean"] for name, value in base["measures"].items()}
    cards = [
        (duration(m["wait_p90_s"]), "p90 wait"),
        (duration(m["wait_p50_s"]), "median wait"),
        (duration(m["jct_mean_s"]), "mean completion time"),
        (percent(m["occupancy"]), "of GPU time in use"),
        (percent(m["productive"]), "productive"),
    ]
    if m["cost"]:
        cards.append((money(m["cost"]), "cost of the whole study"))
        pools = base["replication_0"]["bill"]["pools"]
        cards += [(money(cost), f"of it for pool {rack}") for rack, cost in pools.items()]
    drawn = "".join(f'<div class="card"><b>{b}</b><span>{escape(t)}</span></div>' for b, t in cards)
    return f'<p class="lead">The base: {escape(base["name"])}</p><div class="cards">{drawn}</div>'


def _section(title: str, intro: str, body: str) -> str:
    lead = f"<p>{escape(intro)}</p>" if intro else ""
    return f"<section><h2>{escape(title)}</h2>{lead}{body}</section>" if body else ""


def _list(items: Sequence[str]) -> str:
    return f'<ul class="findings">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def _how_sure(replications: int) -> str:
    if replications == 1:
        return (
            "One run of the original trace for each scenario, so there are no confidence intervals."
        )
    return (
        f"Means of {replications} replications with 95 % confidence intervals. Differences from the "
        "base are paired: both runs use the same random numbers. Only significant ones are coloured."
    )


def _capacity(result: dict[str, Any]) -> str:
    """Draw the wait against capacity, one line for each policy; "" if the study has only one size."""
    lines: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for entry in result["scenarios"]:
        gpus = entry["replication_0"]["gpus"]
        lines.setdefault(_but_cluster(entry), []).append((gpus, entry["measures"]["wait_p90_s"]))
    if not any(len({gpus for gpus, _ in points}) > 1 for points in lines.values()):
        return ""
    series = []
    for name, points in list(lines.items())[:SHOWN_MAX]:
        points.sort(key=lambda point: point[0])
        known = [(g, m) for g, m in points if m["mean"] is not None]
        series.append(
            svg.Series(
                name,
                [g for g, _ in known],
                [m["mean"] for _, m in known],
                [m["low"] for _, m in known],
                [m["high"] for _, m in known],
            )
        )
    sizes = sorted({gpus for points in lines.values() for gpus, _ in points})
    goal = result.get("goal")
    limit = None
    if goal and goal["measure"] == "wait_p90_s":
        limit = (goal["at_most"], f"goal: {duration(goal['at_most'])}")
    chart = svg.line_chart(
        series,
        x_label="GPUs in the cluster",
        y_label="p90 wait",
        x_ticks=[(size, short(size)) for size in sizes],
        y_text=duration,
        markers=True,
        limit=limit,
    )
    return _section("Wait against capacity", "How much each further node shortens the wait.", chart)


def _but_cluster(entry: dict[str, Any]) -> str:
    """Return the fields of a scenario except its cluster, as the name of a line."""
    scenario = entry["scenario"]
    parts = [scenario["policy"]]
    load = scenario["workload"]["load"]
    if load != 1.0:
        parts.append(f"load {load:g}")
    if scenario["faults"]["node_mtbf_s"]:
        parts.append(f"faults {scenario['faults']['name']}")
    if scenario["checkpoints"]["every_s"]:
        parts.append(f"checkpoint every {duration(scenario['checkpoints']['every_s'])}")
    if scenario["autoscale"]:
        parts.append("autoscaled")
    return ", ".join(parts)


def _goodput(scenarios: Sequence[dict[str, Any]]) -> str:
    rows = [
        (s["name"], [s["goodput_share"][part] for part in PARTS])
        for s in scenarios[: 3 * SHOWN_MAX]
    ]
    used = [i for i in range(len(PARTS)) if any(shares[i] > 0 for _, shares in rows)]
    return svg.stacked_bars(
        [(name, [shares[i] for i in used]) for name, shares in rows],
        [PART_COLOURS[PARTS[i]] for i in used],
    )


def _use(scenario: dict[str, Any]) -> str:
    series = scenario["replication_0"]["over_time"]
    times, span = series["t_s"], series["bin_s"] * len(series["t_s"])
    ticks = [(at, duration(at)) for at in time_ticks(span)]
    top = max([*series["offered_gpus"], 1.0])
    waiting = [min(x, 1.5 * top) for x in series["waiting_gpus"]]
    return svg.line_chart(
        [
            svg.Series("in use", times, series["used_gpus"], filled=True),
            svg.Series("on schedulable nodes", times, series["offered_gpus"], dashed=True,
                       colour="#64748b"),
            svg.Series("requested by waiting jobs (cut off at the top)", times, waiting,
                       colour="#ea580c"),
        ],
        x_label="time since the first submission",
        y_label="GPUs",
        x_ticks=ticks,
    )  # fmt: skip


def _waiting(scenarios: Sequence[dict[str, Any]]) -> str:
    tabs = _tabs("sizes", scenarios, lambda s: group_table(s["replication_0"]))
    return _section("Waits and completion times", "By size of job, user and queue.", tabs)


def _nodes(scenarios: Sequence[dict[str, Any]]) -> str:
    shown = [s for s in scenarios if s["replication_0"]["over_time"].get("heat")]
    if not shown:
        return ""
    intro = "How full each node was. Below: the share of free GPUs that are on partly used nodes."
    return _section("Use by node", intro, _tabs("heat", shown, _heat))


def _heat(scenario: dict[str, Any]) -> str:
    series = scenario["replication_0"]["over_time"]
    span = series["bin_s"] * len(series["t_s"])
    drawn = maps.heat_map(
        series["heat"], series["heat_rows"], series["bin_s"], title="nodes over time (dark: full)"
    )
    return drawn + svg.line_chart(
        [svg.Series("free GPUs on partly used nodes", series["t_s"], series["scattered_share"],
                    colour="#9333ea", filled=True)],
        x_label="time since the first submission",
        y_label="share of free GPUs",
        x_ticks=[(at, duration(at)) for at in time_ticks(span)],
        y_text=percent,
    )  # fmt: skip


def _gantt(scenario: dict[str, Any]) -> str:
    window = scenario["replication_0"]["gantt"]
    drawn = maps.gantt(window["bars"], window["begin_s"], window["length_s"])
    if window["shown"] < window["of"]:
        drawn += (
            f"<p>The {window['shown']:,} largest of {window['of']:,} attempts in this window.</p>"
        )
    return drawn


def _tabs(
    name: str, scenarios: Sequence[dict[str, Any]], draw: Callable[[dict[str, Any]], str]
) -> str:
    """Show one scenario at a time, selected by radio buttons: no script is needed."""
    shown = scenarios[:SHOWN_MAX]
    if len(shown) == 1:
        return draw(shown[0])
    keys = "".join(
        f'<input type="radio" name="{name}" id="{name}-{i}"{" checked" if not i else ""}>'
        f'<label for="{name}-{i}">{escape(s["name"])}</label>'
        for i, s in enumerate(shown)
    )
    panes = "".join(f'<div class="pane-{i}">{draw(s)}</div>' for i, s in enumerate(shown))
    more = len(scenarios) - len(shown)
    note = f"<p>result.json has {more} more scenarios.</p>" if more > 0 else ""
    return f'<div class="tabs">{keys}{panes}</div>{note}'


def _tab_rules(count: int) -> str:
    return "".join(
        f".tabs > input:nth-of-type({i + 1}):checked ~ .pane-{i}{{display:block}}"
        for i in range(min(count, SHOWN_MAX))
    )


def _limits(result: dict[str, Any]) -> str:
    """List the assumptions of the study."""
    base = result["scenarios"][0]
    scenario, summary = base["scenario"], base["replication_0"]
    assumptions = [
        "A job runs as long as in the trace, on any hardware. Users submit the same jobs at the same "
        "times, however long the queue is.",
        f"Starting a gang takes {duration(scenario['start_s'])}"
        + ("" if scenario["faults"]["node_mtbf_s"] else "; no node ever fails")
        + ".",
    ]
    if result["replications"] > 1:
        assumptions.append(
            "Replications resample the days of the trace with replacement (or come from a generator "
            "fitted to it). They show the variation within the recorded workload, and nothing "
            "that it does not contain."
        )
    assumptions += [escape(note) for note in summary["notes"]]
    return _section("What this study assumes", "", _list(assumptions))
