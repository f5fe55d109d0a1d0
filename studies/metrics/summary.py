"""The summary of one run as one document."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.metrics.bill import bill
from studies.metrics.goodput import goodput
from studies.metrics.over_time import gantt, over_time
from studies.metrics.waiting import fairness, waiting, waits
from studies.simulation.run import Run
from studies.workloads.trace import gpu_number

LONGEST_MAX = 20
REFUSED_MAX = 20


def summarise(
    run: Run,
    *,
    price_gpu_hour: float = 0.0,
    window: tuple[float, float] | None = None,
    detail: bool = True,
) -> dict[str, Any]:
    """Return the summary of a run.

    `window` is what the Gantt chart shows: its begin and its length in seconds.
    """
    begin = float(run.trace.submit[0])
    finished = int((~np.isnan(run.finished)).sum())
    last = float(np.nanmax(run.finished)) if finished else run.ended_at
    used = goodput(run, detail=detail)
    spent = bill(
        run, price_gpu_hour=price_gpu_hour, gpu_seconds_offered=used["gpu_seconds_offered"]
    )
    cost = spent["total"]
    summary: dict[str, Any] = {
        "jobs": len(run.trace),
        "gpus": run.cluster.gpus,
        "finished": finished,
        "failed": int(run.failed.sum()),
        "unfinished": len(run.trace) - finished - len(run.refused),
        "refused": len(run.refused),
        "refused_examples": _examples(run, run.refused),
        # Unschedulable jobs also count as unfinished.
        "unschedulable": len(run.unschedulable),
        "unschedulable_examples": _examples(run, run.unschedulable),
        "zero_length": int((run.trace.duration == 0).sum()),
        "makespan_s": round(last - begin, 3),
        "work_gpu_s": round(run.trace.gpu_seconds, 3),
        "utilisation": round(run.trace.gpu_seconds / (run.cluster.gpus * (last - begin)), 6)
        if last > begin and not run.refused
        else used["occupancy"],
        **waiting(run),
        "goodput": used,
        "fairness": fairness(run),
        "restarts": int(run.restarts.sum()),
        "restarts_by_cause": run.causes,
        "preemptions": run.causes.get("preemption", 0),
        "cost": cost,
        "bill": spent,
        "cost_per_finished_job": round(cost / finished, 4) if finished else None,
        "longest_waits": longest_waits(run),
        "waited_by_reason_s": _reasons(run),
        "events": run.events,
        "notes": list(run.trace.notes),
    }
    if detail:
        summary["over_time"] = over_time(run)
        summary["gantt"] = gantt(run, *window) if window else gantt(run)
    return summary


def _examples(run: Run, rows: Mapping[int, str]) -> list[dict[str, Any]]:
    return [
        {"id": run.trace.ids[row], "gpus": gpu_number(run.trace.gpus[row]), "why": why}
        for row, why in sorted(rows.items())[:REFUSED_MAX]
    ]


def longest_waits(run: Run) -> list[dict[str, Any]]:
    """Return the jobs that waited longest, with the recorded reasons."""
    wait = np.where(np.isnan(run.started), run.ended_at - run.trace.submit, waits(run))
    rows = [int(r) for r in np.argsort(-wait, kind="stable")[: 2 * LONGEST_MAX]]
    rows = [r for r in rows if r not in run.refused and wait[r] > 0][:LONGEST_MAX]
    return [
        {
            "id": run.trace.ids[row],
            "gpus": gpu_number(run.trace.gpus[row]),
            "submitted_s": round(float(run.trace.submit[row] - run.trace.submit[0]), 3),
            "wait_s": round(float(wait[row]), 3),
            "started": bool(run.started[row] == run.started[row]),
            "reasons_s": _reasons_shown(run, row, float(wait[row])),
        }
        for row in rows
    ]


def _reasons_shown(run: Run, row: int, wait: float) -> dict[str, float]:
    """Return the seconds waited by reason.

    The wait behind other jobs is not recorded: it is what the recorded reasons leave.
    """
    if not run.policy.policy.records_reasons:
        return {}
    recorded = run.reasons.get(row, {})
    shown = {code: round(s, 3) for code, s in sorted(recorded.items())}
    behind = round(wait - sum(shown.values()), 3)
    return shown | {"behind_others": behind} if behind > 0 else shown


def _reasons(run: Run) -> dict[str, float]:
    total: Counter[str] = Counter()
    if not run.policy.policy.records_reasons:
        return {}
    wait_of = waits(run)
    for row in np.nonzero(wait_of > 0)[0].tolist():
        wait = float(wait_of[row])
        for code, seconds in _reasons_shown(run, row, wait).items():
            total[code] += round(seconds)
    return {code: float(seconds) for code, seconds in sorted(total.items())}
