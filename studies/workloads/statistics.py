"""Descriptive statistics of a workload."""

from typing import Any

import numpy as np

from studies.workloads.trace import Trace, gpu_number

DAY_S = 86_400.0
SIZE_CLASSES = ((1, "1"), (7, "2-7"), (8, "8"), (63, "9-63"), (255, "64-255"), (None, ">=256"))


SIZE_NAMES = tuple(name for _, name in SIZE_CLASSES)
# The class of jobs with a part of one GPU; it is listed only if there are such jobs.
SHARED = "<1"


def size_class(gpus: float) -> str:
    """Return the class of a job by its number of GPUs."""
    if 0 < gpus < 1:
        return SHARED
    return next(name for most, name in SIZE_CLASSES if most is None or gpus <= most)


def statistics(trace: Trace) -> dict[str, Any]:
    """Return the statistics of a trace as a document."""
    duration, gaps = trace.duration, np.diff(trace.submit)
    total = max(trace.gpu_seconds, 1e-9)
    hours = np.bincount(((trace.submit - trace.submit[0]) // 3600).astype(np.int64))
    classes = np.array([size_class(g) for g in trace.gpus.tolist()])
    return {
        "jobs": len(trace),
        "span_days": round(trace.span_s / DAY_S, 2),
        "gpu_days": round(trace.gpu_seconds / DAY_S, 1),
        "mean_gpus_demanded": round(trace.gpu_seconds / max(trace.span_s, 1.0), 1),
        "max_gpus": gpu_number(trace.gpus.max()),
        "duration_s": {
            str(q): round(float(np.percentile(duration, q)), 1)
            for q in (10, 25, 50, 75, 90, 95, 99, 100)
        },
        "mean_duration": round(float(duration.mean()), 1),
        "arrivals_per_hour": {
            "mean": round(float(hours.mean()), 2),
            "p50": float(np.percentile(hours, 50)),
            "p99": float(np.percentile(hours, 99)),
            "max": int(hours.max()),
        },
        "interarrival_cv": round(float(gaps.std() / gaps.mean()), 2)
        if len(gaps) and gaps.mean() > 0
        else None,
        "share_jobs_and_gputime_by_size": {
            name: [
                round(100 * float((classes == name).mean()), 2),
                round(100 * float((trace.gpus * duration)[classes == name].sum() / total), 2),
            ]
            for name in (*([SHARED] if SHARED in classes else []), *SIZE_NAMES)
        },
        "zero_duration": int((duration == 0).sum()),
        "notes": list(trace.notes),
    }
