"""Changes of decision code, such as a release might bring, that a look at an old log must show."""

from typing import NamedTuple


class Change(NamedTuple):
    """`old` becomes `new` in one file of the control plane."""

    name: str
    file: str
    old: str
    new: str


SETTLING, RESTART, REPORTS = "lifecycle/settle.py", "lifecycle/restart.py", "decisions/reports.py"
TIMERS, FAILURES = "lifecycle/timers.py", "model/failures.py"
PACKING, PASS = "scheduling/placement/packing.py", "scheduling/scheduling_pass.py"
GROW = "scheduling/elastic/grow.py"

CHANGES = (
    Change("one rank's success is the job's", SETTLING, "(rule.any or False not in done)", "True"),
    Change(
        "an attempt ends before its ranks are gone",
        SETTLING,
        "AttemptState.STOPPING and not attempt.with_devices:",
        "AttemptState.STOPPING:",
    ),
    Change("a resumed job waits", SETTLING, "job.retry_at <= draft.now", "job.retry_at < draft.now"),
    Change("a deadline has another limit", TIMERS, "facts = DeadlinePassed(spec.active_deadline_s)", "facts = DeadlinePassed(0.0)"),
    Change("deadlines come later", TIMERS, "since + limit_s <= now", "since + limit_s < now - 1"),
    Change("less jitter", RESTART, "JITTER_SHARE = 0.2", "JITTER_SHARE = 0.1"),
    Change("the back-off grows slower", RESTART, "* 2.0 **", "* 1.5 **"),
    Change("lost nodes spend retries", RESTART, "cause not in PLATFORM_CAUSES or", "True or"),
    Change("a healthy run heals nothing", RESTART, ">= job.spec.restart.healthy_after_s", "< 0"),
    Change(
        "signals are permanent", FAILURES, "PERMANENT_CODE_MAX = 127", "PERMANENT_CODE_MAX = 255"
    ),
    Change("one retry more", RESTART, "job.failures >= policy.limit", "job.failures > policy.limit"),
    Change(
        "single ranks do not restart",
        RESTART,
        "alone = policy.scope is RestartScope.RANK",
        "alone = False",
    ),
    Change("the emptiest node first", PACKING, "in counts[bisect_left(counts, gpus) :]", "in counts[: -1 - len(counts) + bisect_left(counts, gpus) : -1]"),
    Change("the fullest nodes first", PACKING, "for count in reversed(free.counts)", "for count in free.counts"),
    Change(
        "other devices", "state/devices.py", "bit = word & -word", "bit = 1 << (word.bit_length() - 1)"
    ),
    Change("the ceiling is out of reach", "scheduling/quota/gate.py", "+ gang.milli > ceiling", "+ gang.milli >= ceiling"),
    Change("one gang a pass and queue", PASS, "                heads.move_up()", "                heads.close(gang.id)"),
    Change("low priority first", "state/queue_order.py", "priority_key = float(-spec.priority)", "priority_key = float(spec.priority)"),
    Change("last in, first out", "state/queue_order.py", "planned_s), job.queue_position", "planned_s), -job.queue_position"),
    Change("the protected are not spared", "scheduling/preemption/victim_search.py", "now < attempt.safe_until", "now < 0"),
    Change("a wait reason has another number", "scheduling/explain/explanation.py", "return Wait(code=code, needed=gang.gpus, available=left)", "return Wait(code=code, needed=gang.gpus + 1, available=left)"),
    Change("gangs do not grow", GROW, "    while low < high:", "    while False:"),
    Change("no pass when ranks are gone", "decisions/autonomous.py", "if event.wakes_scheduler:", "if event.wakes_scheduler and not isinstance(event, e.RanksGone | e.AttemptEnded):"),
    Change("no pass after a submission", "decisions/autonomous.py", "if event.wakes_scheduler:", "if event.wakes_scheduler and not isinstance(event, e.JobSubmitted):"),
    Change("gangs are smaller", "kinds/manifest/checking.py", "RANKS_MAX = 10_000", "RANKS_MAX = 3"),
    Change("deleting does not cancel", "decisions/decider.py", "        draft.add(e.JobCancelled(draft.job.id))\n    if not", "        pass\n    if not"),
    Change("an exit has another code", RESTART, "exit_code=failed.exit_code if failed.state is RankState.EXITED else None", "exit_code=None"),
    Change("stopped ranks are no news", REPORTS, "    if gone and (", "    if gone and attempt.state in LIVE and ("),
)  # fmt: skip
