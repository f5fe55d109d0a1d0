"""The result in sentences: what is best, what is clear, and what stands out."""

from html import escape
from typing import Any

from studies.report.units import duration, money, percent, short, some

_TELL = {"wait_p90_s": duration, "jct_mean_s": duration, "cost": money, "makespan_s": duration}


def findings(result: dict[str, Any]) -> list[str]:
    scenarios = result["scenarios"]
    told = []
    goal = result.get("goal")
    if goal is not None:
        told.append(_goal(goal, result["measures"]))
    if len(scenarios) > 1:
        told += [_best(scenarios, "wait_p90_s", "shortest p90 wait")]
        told += [_best(scenarios, "jct_mean_s", "shortest mean completion time")]
        if any(s["measures"]["cost"]["mean"] for s in scenarios):
            told.append(_best(scenarios, "cost_per_finished_job", "lowest cost per finished job"))
        told += _clear(result)
    told += _notable(scenarios[0])
    return told


def _goal(goal: dict[str, Any], labels: dict[str, str]) -> str:
    wish = f"{labels[goal['measure']]} of at most {duration(goal['at_most'])}"
    if goal["nodes"] is None:
        return f"No number of nodes that was tried gives a {wish}."
    order = "" if goal["in_order"] else " (a larger cluster that was tried does not, so look twice)"
    sizes = len(goal["tried"])
    return f"A {wish} needs <b>{goal['nodes']:,} nodes</b>{order}; {sizes} sizes were tried."


def _best(scenarios: list[dict[str, Any]], name: str, told: str) -> str:
    known = [s for s in scenarios if s["measures"][name]["mean"] is not None]
    if not known:
        return f"No scenario finished a job, so there is no {told}."
    best = min(known, key=lambda s: s["measures"][name]["mean"])
    tell = _TELL.get(name, short)
    base = scenarios[0]["measures"][name]["mean"]
    value = best["measures"][name]["mean"]
    text = f"The {told} is that of <b>{escape(best['name'])}</b>: {tell(value)}"
    return (
        f"{text}; the base has {tell(base)}." if best is not scenarios[0] else f"{text}, the base."
    )


def _clear(result: dict[str, Any]) -> list[str]:
    if result["replications"] == 1:
        return []
    unclear = [
        s["name"] for s in result["scenarios"][1:] if not s["against_base"]["wait_p90_s"]["clear"]
    ]
    if not unclear:
        return ["Every scenario's p90 wait differs clearly from the base's."]
    names = "; ".join(f"<b>{escape(name)}</b>" for name in unclear[:4])
    more = f"; and {len(unclear) - 4} more" if len(unclear) > 4 else ""
    return [
        f"Chance alone could explain the difference in p90 wait from the base of: {names}{more}."
    ]


def _notable(base: dict[str, Any]) -> list[str]:
    summary = base["replication_0"]
    share = base["goodput_share"]
    told = []
    blocked = {
        "blocked by fragmentation": share["fragmented"],
        "lost to restarts": share["lost"],
        "spent on start-up": share["start_up"],
        "free although somebody waited, because whoever was next needed more": share["reserved"],
        "down or not rented": share["down"],
    }
    for name, part in sorted(blocked.items(), key=lambda item: -item[1]):
        if part >= 0.01:
            told.append(f"In the base, {percent(part)} of the GPU time was {name}.")
    if summary["refused"]:
        told.append(
            f"{some(summary['refused'], 'job')} larger than the base's cluster can ever hold, "
            "refused at the door."
        )
    if summary["unschedulable"]:
        first = summary["unschedulable_examples"][0]
        told.append(
            f"{some(summary['unschedulable'], 'job')} set aside to the end, because the base's "
            f"cluster could not start them even if nothing ran; {first['id']}: {first['why']}."
        )
    if summary["unfinished"]:
        told.append(f"{some(summary['unfinished'], 'job')} had not ended when the study did.")
    return told
