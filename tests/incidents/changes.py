"""Changes of decision code, such as a release might bring, that a look at an old log must show."""

from typing import NamedTuple


class Change(NamedTuple):
    """`old` becomes `new` in one file of the control plane."""

    name: str
    file: str
    old: str
    new: str


SETTLING, RESTART, REPORTS = "settling.py", "restart.py", "reports.py"
MODEL = "model.py"
PLACEMENT, CYCLE, GROWTH = "scheduling/placement.py", "scheduling/cycle.py", "scheduling/growth.py"

CHANGES = (
    Change("one rank's success is the job's", SETTLING, "(rule.any or False not in done)", "True"),
    Change(
        "an attempt ends before its ranks are gone",
        SETTLING,
        "_STOPPING and not attempt.holding:",
        "_STOPPING:",
    ),
    Change("a resumed job waits", SETTLING, "job.retry_at <= draft.now", "job.retry_at < draft.now"),
    Change("a deadline is told in other words", SETTLING, "it was active for", "it ran for"),
    Change("deadlines come later", SETTLING, "since + limit_s <= now", "since + limit_s < now - 1"),
    Change("less jitter", RESTART, "JITTER_SHARE = 0.2", "JITTER_SHARE = 0.1"),
    Change("the back-off grows slower", RESTART, "* 2.0 **", "* 1.5 **"),
    Change("lost nodes spend retries", RESTART, "cause not in PLATFORM_CAUSES or", "True or"),
    Change("a healthy run heals nothing", RESTART, ">= job.spec.restart.healthy_after_s", "< 0"),
    Change(
        "signals are permanent", MODEL, "PERMANENT_CODE_MAX = 127", "PERMANENT_CODE_MAX = 255"
    ),
    Change("one retry more", RESTART, "job.failures >= policy.limit", "job.failures > policy.limit"),
    Change(
        "single ranks do not restart",
        RESTART,
        "alone = policy.scope is RestartScope.RANK",
        "alone = False",
    ),
    Change("the emptiest node first", PLACEMENT, "in counts[bisect_left(counts, gpus) :]", "in counts[: -1 - len(counts) + bisect_left(counts, gpus) : -1]"),
    Change("the fullest nodes first", PLACEMENT, "for count in reversed(free.counts)", "for count in free.counts"),
    Change(
        "other devices", "devices.py", "bit = word & -word", "bit = 1 << (word.bit_length() - 1)"
    ),
    Change("the ceiling is out of reach", "scheduling/quota_gate.py", "+ gang.milli > ceiling", "+ gang.milli >= ceiling"),
    Change("one gang a pass and queue", CYCLE, "                heads.move_up()", "                heads.close(gang.id)"),
    Change("low priority first", "lines.py", "first = float(-spec.priority)", "first = float(spec.priority)"),
    Change("last in, first out", "lines.py", "Waiting(first, 0, job.queued_as", "Waiting(first, 0, -job.queued_as"),
    Change("the protected are not spared", "scheduling/victims.py", "now < attempt.safe_until", "now < 0"),
    Change("reasons are told in other words", "scheduling/explanation.py", "it needs {gang.gpus} GPUs", "it wants {gang.gpus} GPUs"),
    Change("gangs do not grow", GROWTH, "    while low < high:", "    while False:"),
    Change("no pass when ranks are gone", "initiative.py", "        e.RanksGone,\n        e.AttemptEnded,\n", ""),
    Change("no pass after a submission", "initiative.py", "        e.JobSubmitted,\n", ""),
    Change("gangs are smaller", "kinds/checking.py", "RANKS_MAX = 10_000", "RANKS_MAX = 3"),
    Change("deleting does not cancel", "decider.py", "        draft.add(e.JobCancelled(draft.job.id))\n    if not", "        pass\n    if not"),
    Change("exits are told in other words", RESTART, "exited with code", "ended with code"),
    Change("stopped ranks are no news", REPORTS, "    if gone and (", "    if gone and attempt.state in LIVE and ("),
)  # fmt: skip
