"""The transition table: every event in every phase, attempt state and rank state.

The expectations here are written out by hand; `docs/states.md` is drawn from the declarations in
`controlplane/model/events.py`. A change of the table must change both.
"""

from itertools import product

import pytest
from msgspec.structs import replace

from controlplane.lifecycle.attempt import Rank, count_up, count_with_devices
from controlplane.lifecycle.job import Job, evolve
from controlplane.lifecycle.transitions import require_allowed
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.dependencies import Dependency
from controlplane.model.errors import ImpossibleEvent, LogCorrupt
from controlplane.model.failures import Cause, Exit, Restart
from controlplane.model.obstacle import Obstacle
from controlplane.model.phases import AttemptState, NodeState, Phase, RankState
from controlplane.model.reasons import FailureReason, JobRemovalReason, LossReason, WaitReason
from controlplane.model.rows import GENESIS
from controlplane.model.spec import CleanPods
from controlplane.state.state import State
from tests.controlplane.specification import BOTH_ON_N1, spec
from tests.gangs import placed

ACTIVE = "Starting Running"
WAITING = "Queued Unschedulable"
FINISHED = "Succeeded Failed Cancelled"
AWAKE = f"{WAITING} {ACTIVE} Restarting"
UNFINISHED = f"{AWAKE} Suspended"
ANY = f"{UNFINISHED} {FINISHED}"
NOT_WAITING = f"{ACTIVE} Restarting Suspended {FINISHED}"
IDLE, LIVE, PRESENT = "none Over", "Starting Running", "Starting Running Stopping"
ANYHOW = "none Starting Running Stopping Over"

RESTART = Restart(1.0, 1, Cause.EXIT, True)
SLOT = Slot("n1", (0,))
AWAITS = (Dependency(target="other", name="default/other"),)
OBSTACLE = Obstacle(code=WaitReason.GANG_INCOMPLETE)

# An event of each type about attempt 1 and rank 0; the phases and the attempt states that allow it; and
# the phase that it leads to, if it leads to another one.
EVENTS: list[tuple[e.JobEvent, str, str, str]] = [
    # A job that was never placed is placed in the first attempt; see `test_a_gang_is_placed_in_the_next_attempt`.
    (e.GangPlaced("j", 2, BOTH_ON_N1), "Queued", "Over", "Starting"),
    (e.GangWaiting("j", WaitReason.GANG_INCOMPLETE), WAITING, IDLE, ""),
    (e.JobUnschedulable("j", OBSTACLE), WAITING, IDLE, "Unschedulable"),
    (e.DependenciesMet("j"), "Queued Suspended", "none", ""),
    (e.RanksStuck("j", 1, (0,), "ErrImagePull: no"), ACTIVE, LIVE, ""),
    (e.JobFailed("j", FailureReason.RESTART_NEVER), UNFINISHED, ANYHOW, "Failed"),
    (e.JobErrored("j", "launch", "ValueError"), UNFINISHED, ANYHOW, ""),
    (e.ProtectionEnded("j", 1), ACTIVE, LIVE, ""),
    (e.ServiceTierPassed("j", 1, 1), ACTIVE, LIVE, ""),
    (e.JobSchedulable("j"), "Unschedulable", IDLE, "Queued"),
    (e.RanksReplaced("j", 1, (0,), (SLOT,)), ACTIVE, LIVE, ""),
    (e.RanksStarted("j", 1, (0,)), NOT_WAITING, PRESENT, ""),
    (e.GangStarted("j", 1), "Starting", "Starting", "Running"),
    (e.RanksExited("j", 1, (Exit(0, 0),)), NOT_WAITING, PRESENT, ""),
    (e.RanksLost("j", 1, (0,)), ACTIVE, LIVE, ""),
    (e.RanksReleased("j", 1, (0,), LossReason.SCALED_DOWN), ACTIVE, LIVE, ""),
    (e.RanksAdded("j", 1, 2, (SLOT,)), "Running", "Running", ""),
    (e.RanksRestartedInPlace("j", 1, ((0, 1),), (RESTART,)), ACTIVE, LIVE, ""),
    (e.RanksGone("j", 1, (0,)), NOT_WAITING, PRESENT, ""),
    (e.RankRestarting("j", 1, 0, RESTART, 1, 2.0), ACTIVE, LIVE, ""),
    (e.RankRelaunched("j", 1, 0), ACTIVE, LIVE, ""),
    (e.JobRestarting("j", RESTART, 1, 2.0), ACTIVE, LIVE, "Restarting"),
    (e.JobRequeued("j"), "Restarting", IDLE, "Queued"),
    (e.AttemptEnded("j", 1), f"Restarting Suspended {FINISHED}", "Stopping", ""),
    (e.JobSucceeded("j"), ACTIVE, LIVE, "Succeeded"),
    (e.JobCancelled("j"), UNFINISHED, ANYHOW, "Cancelled"),
    (e.JobSuspended("j"), AWAKE, ANYHOW, "Suspended"),
    (e.JobResumed("j"), "Suspended", ANYHOW, "Restarting"),
    (e.CodeResolved("j", 1, 0, "abc"), ANY, "Starting Running Stopping Over", ""),
    (e.JobScaled("j", "Worker", 1), UNFINISHED, ANYHOW, ""),
    (e.JobAmended("j", None, None, None, CleanPods.ALL), ANY, ANYHOW, ""),
    (e.JobDeleteRequested("j"), FINISHED, ANYHOW, ""),
    (e.EngineFailed("j", 1, "decide", "ValueError"), ANY, ANYHOW, ""),
    (e.JobQuarantined("j", "decide", "ValueError"), ANY, ANYHOW, ""),
    (e.JobRemoved("j", JobRemovalReason.TTL), FINISHED, IDLE, ""),
]

# The states that allow an event about a rank.
RANKS: list[tuple[type[e.RankEvent], str]] = [
    (e.RanksReplaced, "Exited Gone"),
    (e.RanksStarted, "Pending"),
    (e.RanksExited, "Pending Running Lost"),
    (e.RanksLost, "Pending Running Backoff Lost"),
    (e.RanksReleased, "Pending Running Backoff Lost"),
    (e.RanksStuck, "Pending"),
    (e.RanksRestartedInPlace, "Pending Running"),
    (e.RanksGone, "Pending Running Lost"),
    (e.RankRestarting, "Lost Exited Gone"),
    (e.RankRelaunched, "Backoff"),
]


def job_in(phase: Phase, state: AttemptState | None, rank: RankState) -> Job:
    """A job of two ranks in this phase, with an attempt and ranks in these states."""
    job = placed(BOTH_ON_N1, spec(), id="j")
    if state is None:
        return replace(job, phase=phase, attempt=None, awaits=AWAITS)
    attempt = replace(job.attempt, state=state, ranks=(Rank(state=rank),) * 2)
    counted = replace(attempt, up=count_up(attempt), with_devices=count_with_devices(attempt))
    timed = replace(counted, safe_until=1.0, next_tier_at=1.0)
    return replace(job, phase=phase, attempt=timed)


def rank_state_for(event: e.JobEvent) -> RankState:
    """A rank state in which nothing about ranks is against the event."""
    if isinstance(event, e.RankEvent):
        return next(iter(event.ranks_in))
    return (
        RankState.EXITED if isinstance(event, e.AttemptEnded | e.RanksAdded) else RankState.RUNNING
    )


def is_allowed(job: Job, event: e.JobEvent) -> bool:
    try:
        if isinstance(event, e.JobRemoved):
            require_allowed(event, job.phase, job.attempt)
        else:
            evolve(job, e.Recorded(9, 5.0, event))
    except ImpossibleEvent:
        return False
    return True


def test_every_event_of_a_job_is_in_the_matrix():
    assert {type(event) for event, *_ in EVENTS} == set(e.JOB_EVENTS) - {e.JobSubmitted}
    ranks = {kind for kind in e.JOB_EVENTS if issubclass(kind, e.RankEvent)}
    assert {kind for kind, _ in RANKS} == ranks


@pytest.mark.parametrize(
    ("event", "phases", "attempts", "to"), EVENTS, ids=lambda x: type(x).__name__
)
def test_an_event_happens_in_its_phases_and_attempt_states_and_nowhere_else(
    event, phases, attempts, to
):
    for phase, state in product(Phase, [None, *AttemptState]):
        job = job_in(phase, state, rank_state_for(event))
        expected = phase in phases.split() and (state or "none") in attempts.split()
        assert is_allowed(job, event) is expected, (phase, state)
        if expected and not isinstance(event, e.JobRemoved):
            assert evolve(job, e.Recorded(9, 5.0, event)).phase == (to or phase)


@pytest.mark.parametrize(("kind", "states"), RANKS, ids=lambda x: getattr(x, "__name__", ""))
def test_an_event_happens_to_ranks_in_its_states_and_to_no_others(kind, states):
    event = next(event for event, *_ in EVENTS if type(event) is kind)
    for rank in RankState:
        job = job_in(Phase.RUNNING, AttemptState.RUNNING, rank)
        assert is_allowed(job, event) is (rank in states.split()), rank


@pytest.mark.parametrize(
    ("event", "phases", "attempts", "to"), EVENTS, ids=lambda x: type(x).__name__
)
def test_counters_are_those_of_the_ranks_after_every_event(event, phases, attempts, to):
    for phase, state, rank in product(Phase, AttemptState, RankState):
        job = job_in(phase, state, rank)
        if isinstance(event, e.JobRemoved) or not is_allowed(job, event):
            continue
        after = evolve(job, e.Recorded(9, 5.0, event)).attempt
        assert (after.up, after.with_devices) == (count_up(after), count_with_devices(after))


@pytest.mark.parametrize(
    "event", [event for event, *_ in EVENTS if event.attempt_number], ids=lambda x: type(x).__name__
)
def test_an_event_of_another_attempt_is_refused(event):
    for phase, state in product(Phase, AttemptState):
        job = job_in(phase, state, rank_state_for(event))
        later = replace(job, attempt=replace(job.attempt, number=2))
        assert not is_allowed(later, event)


def test_a_gang_is_placed_in_the_next_attempt():
    new = replace(job_in(Phase.QUEUED, None, RankState.RUNNING), awaits=())
    again = job_in(Phase.QUEUED, AttemptState.OVER, RankState.EXITED)
    for number in range(4):
        event = e.GangPlaced("j", number, BOTH_ON_N1)
        assert is_allowed(new, event) is (number == 1)
        assert is_allowed(again, event) is (number == 2)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (e.RanksStarted("j", 1, (2,)), "there is no rank 2; attempt 1 has 2"),
        (e.RanksStarted("j", 1, (-1,)), "there is no rank -1"),
        (e.RanksStarted("j", 1, (0, 0)), "it names a rank twice"),
        (e.RanksStarted("j", 3, (0,)), "it is about attempt 3, and the job is at attempt 1"),
        (e.RankRelaunched("j", 1, 0), "rank 0 is Pending, and it must be Backoff"),
        (e.GangPlaced("j", 2, BOTH_ON_N1), "the job is Starting, and it must be Queued"),
        (e.JobScaled("j", "Server", 2), "it has no role Server"),
    ],
    ids=str,
)
def test_a_refusal_names_the_problem(event, why):
    job = job_in(Phase.STARTING, AttemptState.STARTING, RankState.PENDING)
    with pytest.raises(ImpossibleEvent, match=f"cannot happen to job j: {why}"):
        evolve(job, e.Recorded(9, 5.0, event))


@pytest.mark.parametrize(
    ("rank", "event", "why"),
    [
        (RankState.GONE, e.RanksReplaced("j", 1, (0,), ()), "it has 0 slots for 1 ranks"),
        (RankState.EXITED, e.RanksAdded("j", 1, 3, (SLOT,)), "it begins at rank 3 of 2"),
        (
            RankState.RUNNING,
            e.RanksAdded("j", 1, 1, (SLOT,)),
            r"ranks \[1\] still have their devices",
        ),
    ],
    ids=str,
)
def test_a_refusal_of_ranks_names_the_problem(rank, event, why):
    job = job_in(Phase.RUNNING, AttemptState.RUNNING, rank)
    with pytest.raises(ImpossibleEvent, match=why):
        evolve(job, e.Recorded(9, 5.0, event))


def test_an_attempt_ends_only_when_no_rank_has_devices():
    job = job_in(Phase.SUCCEEDED, AttemptState.STOPPING, RankState.RUNNING)
    with pytest.raises(ImpossibleEvent, match="2 of its ranks still have their devices"):
        evolve(job, e.Recorded(9, 5.0, e.AttemptEnded("j", 1)))


# ---------------------------------------------------------------- histories


def refused_at(events: list[e.Event]) -> LogCorrupt:
    """The refusal of a log of these events, all correctly hashed."""
    batch = [e.Recorded(n, 1_000.0 + n, event) for n, event in enumerate(events, start=1)]
    with pytest.raises(LogCorrupt, match="this cannot have happened") as refusal:
        fold(State(), codec.to_rows(batch, GENESIS), GENESIS)
    return refusal.value


LIFE: list[e.Event] = [
    e.NodeReported("n1", NodeInfo("n1", 8)),
    e.JobSubmitted("j", "default", "train", spec()),
    e.GangPlaced("j", 1, BOTH_ON_N1),
    e.RanksStarted("j", 1, (0, 1)),
    e.GangStarted("j", 1),
    e.RanksExited("j", 1, (Exit(0, 0), Exit(1, 0))),
    e.JobSucceeded("j"),
    e.AttemptEnded("j", 1),
    e.JobRemoved("j", JobRemovalReason.TTL),
]


@pytest.mark.parametrize("index", range(1, len(LIFE)), ids=lambda i: type(LIFE[i]).__name__)
def test_an_event_that_is_recorded_twice_is_refused_at_its_second_position(index):
    assert refused_at([*LIFE[: index + 1], LIFE[index]]).position == index + 2


@pytest.mark.parametrize(
    ("missing", "refused"),
    [
        (e.JobSubmitted, e.GangPlaced),
        (e.GangPlaced, e.RanksStarted),
        (e.RanksStarted, e.GangStarted),
        (e.RanksExited, e.AttemptEnded),
        (e.JobSucceeded, e.AttemptEnded),
        (e.AttemptEnded, e.JobRemoved),
    ],
)
def test_without_an_event_a_later_one_is_refused(missing, refused):
    events = [event for event in LIFE if type(event) is not missing]
    assert type(events[refused_at(events).position - 1]) is refused


def test_a_finished_job_takes_no_more_events():
    for late in (
        e.GangWaiting("j", WaitReason.GANG_INCOMPLETE),
        e.RanksStarted("j", 99, (0,)),
        LIFE[5],
    ):
        refusal = refused_at([*LIFE[:8], late])
        assert refusal.position == 9


def test_an_event_of_no_job_is_refused():
    assert "there is no job j" in str(refused_at([e.JobCancelled("j")]))


NODE_EVENTS: list[tuple[e.NodeEvent, str]] = [
    (e.NodeReported("n", NodeInfo("n", 8)), "Unknown Ready Lost Removed"),
    (e.NodeLost("n"), "Ready"),
    (e.NodeRemoved("n"), "Ready Lost"),
    (e.NodeCordoned("n"), "Ready Lost"),
    # None of these nodes is cordoned.
    (e.NodeDrainRequested("n"), ""),
    (e.NodeUncordoned("n"), ""),
]
NODE_PASTS: dict[NodeState, list[e.Event]] = {
    NodeState.UNKNOWN: [],
    NodeState.READY: [e.NodeReported("n", NodeInfo("n", 8))],
    NodeState.LOST: [e.NodeReported("n", NodeInfo("n", 8)), e.NodeLost("n")],
    NodeState.REMOVED: [e.NodeReported("n", NodeInfo("n", 8)), e.NodeRemoved("n")],
}


def is_possible(events: list[e.Event]) -> bool:
    state = State()
    for n, event in enumerate(events, start=1):
        try:
            state.apply(e.Recorded(n, 1.0, event))
        except ImpossibleEvent:
            assert n == len(events), event
            return False
    return True


@pytest.mark.parametrize("state", NodeState)
@pytest.mark.parametrize(("event", "states"), NODE_EVENTS, ids=lambda x: type(x).__name__)
def test_an_event_of_a_node_happens_in_its_states_and_nowhere_else(event, states, state):
    assert is_possible([*NODE_PASTS[state], event]) is (state in states.split())


def test_every_event_of_a_node_is_in_the_matrix():
    kinds = {kind for kind in e.EVENT_TYPES.values() if issubclass(kind, e.NodeEvent)}
    assert {type(event) for event, _ in NODE_EVENTS} == kinds


def test_a_node_is_cordoned_and_uncordoned_in_turn():
    cordon, uncordon = e.NodeCordoned("n"), e.NodeUncordoned("n")
    past = NODE_PASTS[NodeState.READY]
    assert is_possible([*past, cordon, uncordon, cordon])
    assert is_possible([*past, cordon, e.NodeDrainRequested("n"), uncordon])
    assert not is_possible([*past, cordon, cordon])
    assert not is_possible([*past, cordon, uncordon, uncordon])


@pytest.mark.parametrize(
    "events",
    [
        [e.QueueRemoved("q")],
        [e.CycleEnded()],
        [e.ClusterSurveyed(), e.ClusterSurveyed()],
    ],
    ids=lambda events: type(events[-1]).__name__,
)
def test_events_of_the_cluster_have_an_order_too(events):
    assert not is_possible(events)
