"""One run as one document: what is asked of a study, in numbers."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.answers.bill import bill
from studies.answers.goodput import goodput
from studies.answers.over_time import gantt, over_time
from studies.answers.waiting import fairness, waiting, waits
from studies.run import Run
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
    """`window` is the part of the study that the Gantt chart shows: begin and length."""
    begin = float(run.trace.submit[0])
    finished = int((~np.isnan(run.finished)).sum())
    last = float(np.nanmax(run.finished)) if finished else run.ended_at
    used = goodput(run, detail=detail)
    spent = bill(
        run, price_gpu_hour=price_gpu_hour, gpu_seconds_offered=used["gpu_seconds_offered"]
    )
    cost = spent["total"]
    told: dict[str, Any] = {
        "jobs": len(run.trace),
        "gpus": run.cluster.gpus,
        "finished": finished,
        "failed": int(run.failed.sum()),
        "unfinished": len(run.trace) - finished - len(run.refused),
        "refused": len(run.refused),
        "refused_examples": _examples(run, run.refused),
        # They are among the unfinished, too.
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
        told["over_time"] = over_time(run)
        told["gantt"] = gantt(run, *window) if window else gantt(run)
    return told


def _examples(run: Run, rows: Mapping[int, str]) -> list[dict[str, Any]]:
    return [
        {"id": run.trace.ids[row], "gpus": gpu_number(run.trace.gpus[row]), "why": why}
        for row, why in sorted(rows.items())[:REFUSED_MAX]
    ]


def longest_waits(run: Run) -> list[dict[str, Any]]:
    """Who waited longest, and for what as far as the control plane recorded it."""
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
            "reasons_s": _told_reasons(run, row, float(wait[row])),
        }
        for row in rows
    ]


def _told_reasons(run: Run, row: int, wait: float) -> dict[str, float]:
    """Seconds by reason. Being behind others is not recorded: it is what is left of the wait."""
    if not run.policy.policy.records_reasons:
        return {}
    said = run.reasons.get(row, {})
    told = {code: round(s, 3) for code, s in sorted(said.items())}
    behind = round(wait - sum(told.values()), 3)
    return told | {"behind_others": behind} if behind > 0 else told


def _reasons(run: Run) -> dict[str, float]:
    total: Counter[str] = Counter()
    if not run.policy.policy.records_reasons:
        return {}
    wait_of = waits(run)
    for row in np.nonzero(wait_of > 0)[0].tolist():
        wait = float(wait_of[row])
        for code, seconds in _told_reasons(run, row, wait).items():
            total[code] += round(seconds)
    return {code: float(seconds) for code, seconds in sorted(total.items())}
