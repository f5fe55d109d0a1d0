"""Every reason and every struct of facts has a rendering, and no event holds a sentence of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from controlplane import messages as m
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model import reasons as r
from controlplane.model.failures import Cause, Exit, Failure, Restart
from controlplane.model.reasons import LossReason, Wait, WaitReason

# These always come with facts.
WITH_FACTS = {
    WaitReason.WAITING_FOR_DEPENDENCY,
    WaitReason.NO_EXCLUSIVE_DOMAIN,
    WaitReason.WAITING_FOR_DEPENDENCY,
    WaitReason.BLOCKED_BY_HEAD,
    WaitReason.STARTS_LIMITED,
    WaitReason.MANAGED_ELSEWHERE,
    WaitReason.RANK_STUCK,
}
GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.jsonl"))
# Fields whose text comes from outside: a manifest, a kubelet, a program, an error.
FROM_OUTSIDE = {"spec", "detail", "text", "lines", "document"}
# An operation: a word, and the type that it was about.
OPERATIONS = {"where"}


def test_every_wait_reason_has_a_rendering():
    assert set(m.WAITS) | set(m.OBSTACLES) | WITH_FACTS == set(WaitReason)


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (m.WAIT_FACTS, r.WaitFacts),
        (m.RESTARTS, r.RestartFacts),
        (m.FAILURES, r.FailureFacts),
    ],
)
def test_every_struct_of_facts_has_a_rendering(table: dict[type, Any], facts: Any):
    assert set(table) == set(get_args(facts))


@pytest.mark.parametrize("reason", LossReason)
@pytest.mark.parametrize("left_s", [None, 30.0])
def test_every_loss_has_a_rendering(reason: LossReason, left_s: float | None):
    text = m.loss_text(r.Loss(reason, "n1", "why", left_s))
    assert text.endswith(": why")
    assert "{" not in text


def test_victims_are_counted():
    three = Wait(code=WaitReason.WAITING_FOR_VICTIMS, facts=r.VictimsLeaving(3))
    assert m.wait_text(three) == "waiting for 3 jobs to release their GPUs"


def test_a_failure_names_its_cause_and_why_it_was_final():
    last = Restart(0.0, 1, Cause.OOM, True, 0, 137, "n1", "worker-0", "killed", "OOMKilled")
    failure = Failure(r.FailureReason.RETRIES_EXHAUSTED, 0, 137, last, r.BudgetSpent(3, 3))
    assert m.failure_text(failure) == (
        "worker-0 exited with code 137 (out of memory) on n1: OOMKilled: killed; "
        "3 of 3 restarts were already used"
    )


@pytest.mark.parametrize(
    "kind", [*e.EVENT_TYPES.values(), Job, Rank, Exit, Restart, Failure], ids=lambda k: k.__name__
)
def test_no_event_and_no_state_has_a_message(kind: Any):
    assert "message" not in kind.__struct_fields__


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_no_log_holds_a_sentence_that_we_made(path: Path):
    for line in path.read_text().splitlines():
        assert [text for text in texts(json.loads(line)) if " " in text] == []


def texts(plain: Any, key: str = "") -> Iterator[str]:
    if isinstance(plain, dict):
        for name, value in plain.items():
            if name not in FROM_OUTSIDE | OPERATIONS:
                yield from texts(value, name)
    elif isinstance(plain, list):
        for value in plain:
            yield from texts(value, key)
    elif isinstance(plain, str):
        yield plain
