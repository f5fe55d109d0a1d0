"""The commands that a log records are the commands that were given."""

from typing import get_args

import pytest
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace

from controlplane.audit.recorded_commands import COMMAND_TYPES, by_command, command_of
from controlplane.decisions.decider import decide, unfold
from controlplane.lifecycle.draft import Decision
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Exit
from controlplane.model.policy import Queue
from controlplane.model.spec import CleanPods
from controlplane.state.world import World
from tests.controlplane.specification import Given, node, running_job, spec, submit
from tests.controlplane.test_properties import Live, history, seeds
from tests.incidents.day import Day


def is_recorded(given: c.AnyCommand, read: c.AnyCommand) -> bool:
    """Whether `read` is the command that was given; of a report, the part that was news."""
    if type(given) is not type(read) or (given.id, given.actor) != (read.id, read.actor):
        return False
    if isinstance(read, c.ReportRanks):
        assert isinstance(given, c.ReportRanks)
        return _news(read) <= _news(given)
    if isinstance(read, c.JobRequest):
        assert isinstance(given, c.JobRequest)
        return given.job in ("", read.job) and replace(read, job=given.job) == given
    return read == given


def _news(report: c.ReportRanks) -> set[tuple[object, ...]]:
    """The whole content of a report. For a rank that will leave, the exit code means nothing."""
    run = report.job, report.attempt
    leaving = [Exit(x.rank, None, x.cause, x.detail, loss=x.loss) for x in report.leaving]
    pairs = {
        "started": report.started,
        "exited": report.exited,
        "gone": report.gone,
        "leaving": leaving,
        "restarted": report.restarted,
        "commits": report.commits,
        "stuck": report.stuck,
    }
    return {(*run, name, value) for name, values in pairs.items() for value in values}


class Audited(Live):
    """Reads each command back from its events, and decides what was read once more."""

    def give(self, command: c.AnyCommand) -> None:
        decided = decide(self.world, command, self.now)
        if decided.events:
            read = command_of(self.world, self.enveloped(decided, command))
            assert is_recorded(command, read), (command, read)
            assert decide(self.world, read, self.now).events == decided.events
        super().give(command)


@given(seeds)
def test_any_command_is_read_as_it_was_given(seed: int) -> None:
    live = Audited()
    live.record(Decision([e.QueueDefined(Queue("q2")), e.NodeReported("n1", NodeInfo("n1", 8))]))
    for thing in history(seed):
        live.do(thing)


class GivenDay(Day):
    """A day that remembers the commands that its engine was given."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.given: list[c.AnyCommand] = []
        submitted = self.engine.submit

        def submit(command: c.AnyCommand, *reply: object) -> None:
            self.given += unfold(World(), command)
            submitted(command, *reply)  # type: ignore[arg-type]

        self.engine.submit = submit  # type: ignore[method-assign]


def test_the_commands_of_a_day_are_read_in_the_order_in_which_they_were_given() -> None:
    day = GivenDay(5, jobs=150, day_s=10_000.0, racks=2, nodes=4, restless=True)
    day.run()
    world, groups = World(), {group[0].position: group for group in by_command(day.log.events)}
    left = iter(day.given)
    for recorded in day.log.events:
        if (group := groups.get(recorded.position)) is not None:
            read = command_of(world, group)
            assert any(is_recorded(given, read) for given in left), (
                f"no command was given for {read}"
            )
        world.apply(recorded)
    assert {group[0].command for group in groups.values()} >= {
        "SubmitJob", "ScaleJob", "AmendJob", "DrainNode", "CancelJob", "ReportRanks",
    }  # fmt: skip


def test_every_command_that_is_decided_can_be_read() -> None:
    assert set(COMMAND_TYPES.values()) == set(get_args(c.AnyCommand)) - {c.ReportCluster}


def read_back(given: Given, command: c.AnyCommand) -> c.AnyCommand:
    decided = decide(given.world, command, given.now)
    batch = [
        e.Recorded(i, given.now, event, command.id, command.actor, type(command).__name__, 1, 1)
        for i, event in enumerate(decided.events, 1)
    ]
    return command_of(given.world, batch)


@pytest.mark.parametrize(
    "limits",
    [{"ttl_s": None}, {"ttl_s": 5.0}, {"clean": CleanPods.ALL}, {"restart_limit": 9, "ttl_s": 1.0}],
)
def test_an_amendment_names_the_limits_that_the_person_named(limits: dict[str, object]) -> None:
    given = running_job(spec(ttl_s=7.0))
    command = c.AmendJob(id="k", actor="ann", namespace="default", name="train", **limits)
    read = read_back(given, command)
    assert isinstance(read, c.AmendJob)
    assert replace(read, job="") == command
    unnamed = {"ttl_s", "active_deadline_s", "restart_limit", "clean"} - set(limits)
    assert all(getattr(read, name) is UNSET for name in unnamed)


def test_a_drain_of_a_node_that_is_cordoned_already_is_recorded_as_a_drain() -> None:
    given = running_job().when(c.CordonNode(node="n1"))
    drain = c.DrainNode(id="k", actor="ann", node="n1")
    assert read_back(given, drain) == drain
    given.when(drain)
    assert decide(given.world, drain, given.now).events == []


def test_a_deletion_and_a_cancellation_are_distinguished() -> None:
    given = running_job()
    for kind in (c.DeleteJob, c.CancelJob):
        assert type(read_back(given, kind(namespace="default", name="train"))) is kind


def test_a_submission_that_is_suspended_is_read_as_one() -> None:
    given = Given(node("n1"))
    for suspended in (True, False):
        command = replace(submit("train", "j1", spec()), suspended=suspended)
        assert read_back(given, command) == command


def test_two_reports_of_one_step_stay_two() -> None:
    """Their events could be those of one report, which would decide something else."""
    started = e.Recorded(1, 1.0, e.RanksStarted("j1", 1, (0,)), "", "", "ReportRanks", 1, 1)
    exited = e.Recorded(2, 1.0, e.RanksExited("j1", 1, (Exit(0, 0),)), "", "", "ReportRanks", 1, 2)
    assert list(by_command([started, exited])) == [[started], [exited]]
