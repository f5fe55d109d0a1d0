"""Disciplines and quota models by name: registered once, refused if unknown, compared nowhere."""

import ast
from pathlib import Path

import pytest

from adapters.logs.memory_log import MemoryLog
from controlplane.disciplines.discipline import Discipline, OnBlocked
from controlplane.disciplines.fifo import Fifo
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.log.codec import to_rows
from controlplane.log.fold import fold
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import PolicyMissing
from controlplane.model.policy import Policy, Queue
from controlplane.model.registry import NameTaken, UnknownName
from controlplane.model.rows import GENESIS
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from controlplane.state.state import State
from controlplane.state.world import World
from tests.controlplane.specification import Given
from tests.scenarios.scenario import run_now

ROOT = Path(__file__).parents[2]


class OtherFifo(Discipline):
    name = "fifo"
    description = "not the registered one"
    on_blocked = OnBlocked.SKIP


def test_a_name_is_registered_once() -> None:
    DISCIPLINES.register(Fifo())
    with pytest.raises(NameTaken, match="already a discipline fifo"):
        DISCIPLINES.register(OtherFifo())


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="no quota model 'fair' here; there are: quota_classic, "):
        QUOTA_MODELS["fair"]
    given = Given()
    refusal = given.refuses(c.SetPolicy(policy=Policy(model="fair")))
    assert (refusal.code, "'fair' is not one of quota_classic" in refusal.message) == (
        "invalid_policy",
        True,
    )
    refusal = given.refuses(c.DefineQueue(queue=Queue("q", discipline="lifo")))
    assert (refusal.code, "'lifo' is not one of fifo, fit" in refusal.message) == (
        "invalid_queue",
        True,
    )


NAMING = [
    e.PolicySet(Policy(discipline="lifo")),
    e.PolicySet(Policy(model="fair")),
    e.QueueDefined(Queue("q", discipline="lifo")),
]


@pytest.mark.parametrize("event", NAMING, ids=["discipline", "model", "queue"])
@pytest.mark.parametrize("state", [State, World])
def test_a_log_that_names_what_is_not_installed_is_refused_there(event, state) -> None:
    past = [e.Recorded(1, 0.0, e.QueueDefined(Queue("lab"))), e.Recorded(2, 1.0, event)]
    with pytest.raises(PolicyMissing, match=r"position 2: there is no .* here; there are: ") as bad:
        fold(state(), to_rows(past, GENESIS), GENESIS)
    assert bad.value.position == 2


def test_a_snapshot_that_names_what_is_not_installed_is_not_used() -> None:
    past = [e.Recorded(1, 0.0, e.QueueDefined(Queue("lab"))), e.Recorded(2, 1.0, NAMING[1])]
    state = State()
    for recorded in past:
        state.apply(recorded)
    log = MemoryLog(past)
    run_now(log.save_snapshot(take_snapshot(state, to_rows(past, GENESIS)[-1].hash)))

    with pytest.raises(PolicyMissing, match="position 2"):
        run_now(rebuild(log))


def test_no_code_compares_with_a_particular_name() -> None:
    names = {*DISCIPLINES.names, *QUOTA_MODELS.names}
    folders = ("controlplane", "adapters", "studies", "api", "cli")
    for file in [file for folder in folders for file in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare):
                literals = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant)}
                assert not names & literals, f"{file}:{node.lineno}"
