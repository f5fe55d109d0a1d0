"""The findings of a study in sentences: the best scenarios, clear differences, and notable losses."""

from html import escape, unescape
from typing import Any

from studies.report.units import duration, money, percent, short, some

_FORMATS = {"wait_p90_s": duration, "jct_mean_s": duration, "cost": money, "makespan_s": duration}


def findings(result: dict[str, Any]) -> list[str]:
    """Return the findings as sentences in HTML."""
    scenarios = result["scenarios"]
    sentences = []
    goal = result.get("goal")
    if goal is not None:
        sentences.append(_goal(goal, result["measures"]))
    if len(scenarios) > 1:
        sentences += [_best(scenarios, "wait_p90_s", "shortest p90 wait")]
        sentences += [_best(scenarios, "jct_mean_s", "shortest mean completion time")]
        if any(s["measures"]["cost"]["mean"] for s in scenarios):
            sentences.append(
                _best(scenarios, "cost_per_finished_job", "lowest cost per finished job")
            )
        sentences += _clear(result)
    sentences += _notable(scenarios[0])
    return sentences


def plain(sentence: str) -> str:
    """Return a finding as plain text. The only markup of a finding is bold."""
    return unescape(sentence.replace("<b>", "").replace("</b>", ""))


def _goal(goal: dict[str, Any], labels: dict[str, str]) -> str:
    limit = f"{labels[goal['measure']]} of at most {duration(goal['at_most'])}"
    if goal["nodes"] is None:
        return f"No cluster size that was tried reaches a {limit}."
    order = (
        ""
        if goal["in_order"]
        else " (but a larger cluster that was tried does not reach the goal: check the table of sizes)"
    )
    sizes = len(goal["tried"])
    return f"A {limit} needs <b>{goal['nodes']:,} nodes</b>{order}; {sizes} sizes were tried."


def _best(scenarios: list[dict[str, Any]], name: str, title: str) -> str:
    known = [s for s in scenarios if s["measures"][name]["mean"] is not None]
    if not known:
        return f"No scenario finished a job, so there is no {title}."
    best = min(known, key=lambda s: s["measures"][name]["mean"])
    text_of = _FORMATS.get(name, short)
    base = scenarios[0]["measures"][name]["mean"]
    value = best["measures"][name]["mean"]
    text = f"The {title} is {text_of(value)}, with <b>{escape(best['name'])}</b>"
    return f"{text} (base: {text_of(base)})." if best is not scenarios[0] else f"{text} (the base)."


def _clear(result: dict[str, Any]) -> list[str]:
    if result["replications"] == 1:
        return []
    unclear = [
        s["name"] for s in result["scenarios"][1:] if not s["against_base"]["wait_p90_s"]["clear"]
    ]
    if not unclear:
        return ["The p90 wait of every scenario differs significantly from the base."]
    names = "; ".join(f"<b>{escape(name)}</b>" for name in unclear[:4])
    more = f"; and {len(unclear) - 4} more" if len(unclear) > 4 else ""
    return [
        f"The p90 wait of these scenarios does not differ significantly from the base: {names}{more}."
    ]


def _notable(base: dict[str, Any]) -> list[str]:
    summary = base["replication_0"]
    share = base["goodput_share"]
    sentences = []
    blocked = {
        "blocked by fragmentation": share["fragmented"],
        "lost to restarts": share["lost"],
        "spent on start-up": share["start_up"],
        "free while jobs waited, because the next job needed more GPUs": share["reserved"],
        "down or not rented": share["down"],
    }
    for name, part in sorted(blocked.items(), key=lambda item: -item[1]):
        if part >= 0.01:
            sentences.append(f"In the base, {percent(part)} of the GPU time was {name}.")
    if summary["refused"]:
        sentences.append(
            f"Refused at submission: {some(summary['refused'], 'job')}, larger than the whole cluster "
            "of the base."
        )
    if summary["unschedulable"]:
        first = summary["unschedulable_examples"][0]
        sentences.append(
            f"Unschedulable: {some(summary['unschedulable'], 'job')}; the cluster of the base "
            f"could not start them even if it were empty. Example: {first['id']}: {first['why']}."
        )
    if summary["unfinished"]:
        sentences.append(
            f"{some(summary['unfinished'], 'job')} had not finished at the end of the study."
        )
    return sentences
