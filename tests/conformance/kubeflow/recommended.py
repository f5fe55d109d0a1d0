"""What a better system should do, where a scenario has that in prose; and what always must hold.

A recommendation is read by the phrases in it. One that holds no phrase known here is refused, for
nothing would be compared with it but the invariants, which every outcome must satisfy anyway.
"""

import re
from collections.abc import Callable

from adapters.kubernetes.reconcile.desired_pods import is_over
from tests.conformance.kubeflow.reconcile import Outcome

TERMINAL = ("Succeeded", "Failed")


def problems(outcome: Outcome, recommended: str) -> list[str]:
    broken = invariants(outcome)
    checks = [check for phrase, check in PHRASES if re.search(phrase, recommended, re.IGNORECASE)]
    assert checks, f"no reader knows the recommendation {recommended!r}"
    for check in checks:
        broken += check(outcome)
    return broken


def invariants(outcome: Outcome) -> list[str]:
    """What holds after any look at any pods."""
    broken = []
    terminal = [name for name in TERMINAL if holds(outcome, name)]
    if len(terminal) > 1:
        broken.append(f"two terminal conditions: {terminal}")
    if bool(terminal) != ("completionTime" in outcome.status):
        broken.append("a completion time is set exactly if the job is finished")
    if terminal and holds(outcome, "Running"):
        broken.append("a finished job does not run")
    if outcome.job.finished and outcome.created:
        broken.append(f"pods made for a finished job: {outcome.created}")
    if outcome.job.finished:
        outcome.bench.pass_time(5.0)
        pods = outcome.bench.store.pods()
        busy = sorted(name for name, pod in pods.items() if not is_over(pod))
        if busy:
            broken.append(f"a finished job holds devices: {busy}")
    return broken


def holds(outcome: Outcome, condition: str) -> bool:
    conditions = outcome.status.get("conditions", [])
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


Check = Callable[[Outcome], list[str]]


def _holds(condition: str) -> Check:
    return lambda outcome: [] if holds(outcome, condition) else [f"{condition} is not True"]


def _running_is_false(outcome: Outcome) -> list[str]:
    return ["Running is True"] if holds(outcome, "Running") else []


def _fails_in_the_end(outcome: Outcome) -> list[str]:
    """However often the pod is made again, the failures come to an end."""
    bench = outcome.bench
    for _ in range(200):
        job = bench.look()
        if job is None or job.finished:
            break
        for name, pod in bench.store.pods().items():
            if not is_over(pod):
                ended = {"name": _speaker(pod), "state": {"terminated": {"exitCode": 137}}}
                status = {"phase": "Failed", "containerStatuses": [ended]}
                bench.store.objects[("Pod", name)] = {**pod, "status": status}  # type: ignore[index]
        bench.pass_time(60.0, step_s=30.0)
    job = bench.job
    assert job is not None
    spent = [restart for restart in job.restarts if restart.spends_budget]
    if job.phase.value != "Failed" or job.reason != "retries_exhausted":
        return [f"it did not fail by its limit: {job.phase} {job.reason}"]
    limit = job.spec.restart.limit
    return [] if limit is not None and len(spent) <= limit else [f"{len(spent)} restarts"]


def _speaker(pod: dict[str, object]) -> str:
    spec = pod["spec"]
    assert isinstance(spec, dict)
    return str(spec["containers"][0]["name"])


def _is_deleted_in_time(outcome: Outcome) -> list[str]:
    if not outcome.removed:
        outcome.bench.pass_time(1.0 + (outcome.job.spec.ttl_s or 0.0))
    return [] if outcome.bench.look() is None else ["the job was not deleted"]


def _nothing_created(outcome: Outcome) -> list[str]:
    return [f"created {outcome.created}"] if outcome.created else []


PHRASES: tuple[tuple[str, Check], ...] = (
    (r"once re-creations exceed backoffLimit", _fails_in_the_end),
    (r"^(?!.*exceed).*\bFailed\b(?! metric)", _holds("Failed")),
    (r"(?<!Running=)\bSucceeded\b", _holds("Succeeded")),
    (r"record the .*success", _holds("Succeeded")),
    (r"\bRestarting\b", _holds("Restarting")),
    (r"Running=False", _running_is_false),
    (r"do not create pods", _nothing_created),
    (r"\bdeleted\b", _is_deleted_in_time),
    # These are among the invariants.
    (r"one terminal condition", lambda outcome: []),
    (r"completionTime", lambda outcome: []),
)
