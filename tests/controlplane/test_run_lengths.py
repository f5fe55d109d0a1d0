"""Run lengths that are learned: by which groups, within which bounds, and what is planned by them."""

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import Role, Scheduling
from controlplane.queries.queries import why
from controlplane.scheduling.decisions import Start
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.run_lengths import (
    ENOUGH,
    GROUPS_MAX,
    SAMPLES_MAX,
    RunLengths,
    Sample,
    estimate,
)
from controlplane.state.world import World
from tests.controlplane.specification import Given, node, spec, submit
from tests.controlplane.test_scheduling_features import passed, started

EASY = Policy(discipline="easy")
LEADS = e.EngineStarted(1, "test")


def job_of(gpus: int = 1, image: str = "a", **changes):
    return spec(roles=(Role(name="Worker", gpus=gpus, image=image),), **changes)


def learned_from(lengths, of=None) -> RunLengths:
    learned = RunLengths()
    for number, length in enumerate(lengths):
        learned.add("team", of or job_of(), Sample(float(number), length, 0.0))
    return learned


def planned_s(lengths: RunLengths, of, policy=EASY) -> float:
    return estimate("team", of, policy, lengths).planned_s


def test_the_job_s_own_estimate_comes_before_what_was_learned():
    lengths = learned_from([240.0] * 10)
    asks = Scheduling(estimate_s=7.0)
    assert estimate("team", job_of(scheduling=asks), EASY, lengths)[:2] == (7.0, "estimate")
    assert estimate("team", job_of(active_deadline_s=9.0), EASY, lengths)[:2] == (9.0, "limit")
    assert estimate("team", job_of(), EASY, lengths)[:2] == (256.0, "learned")
    off = Policy(discipline="easy", learned_estimates=False)
    assert estimate("team", job_of(), off, lengths)[:2] == (86_400.0, "default")
    assert estimate("team", job_of(), EASY, RunLengths())[:2] == (86_400.0, "default")


def test_the_narrowest_group_with_enough_jobs_decides():
    lengths = learned_from([100.0] * (ENOUGH - 1))
    assert planned_s(lengths, job_of()) == 86_400.0
    for number in range(ENOUGH):
        lengths.add("team", job_of(image="b"), Sample(50.0 + number, 1_000.0, 0.0))
    # Of its own image there are too few; of its size there are enough.
    learned = lengths.learned("team", job_of())
    assert (learned.level, learned.jobs) == ("size", 2 * ENOUGH - 1)
    assert lengths.learned("team", job_of(image="b")).level == "alike"
    assert lengths.learned("team", job_of(gpus=7)).level == "kind"
    assert lengths.learned("other", job_of(gpus=7)).level == "all"


def test_the_spread_counts_and_small_changes_do_not():
    assert planned_s(learned_from([100.0] * 8 + [400.0] * 2), job_of()) == 448.0
    learned = learned_from([100.0] * 8 + [400.0] * 2).learned("team", job_of())
    assert (learned.median_s, learned.p90_s) == (100.0, 400.0)
    lengths = learned_from([240.0] * 10)
    assert not lengths.add("team", job_of(), Sample(99.0, 241.0, 0.0))
    assert any(lengths.add("team", job_of(), Sample(99.0, 2_000.0, 0.0)) for _ in range(5))


def test_samples_and_groups_are_bounded_in_any_order():
    samples = [Sample(float(n), float(n % 7), 1.0) for n in range(3 * SAMPLES_MAX)]
    one, other = RunLengths(), RunLengths()
    for sample in samples:
        one.add("team", job_of(), sample)
    for sample in reversed(samples):
        other.add("team", job_of(), sample)
    assert one == other
    assert max(map(len, one.groups.values())) == SAMPLES_MAX
    for number in range(GROUPS_MAX):
        one.add("team", job_of(image=f"i{number}"), Sample(1_000.0 + number, 1.0, 0.0))
    assert one.forget()
    assert len(one.groups) <= GROUPS_MAX
    assert one.learned("team", job_of()) is not None


# ---------------------------------------------------------------- in a world


def ran(given: Given, job: str, seconds: float, of=None) -> None:
    given.when(submit(job, job, of or job_of()))
    passed(given)
    started(given, job)
    given.later(seconds).when(
        c.ReportRanks(job=job, attempt=1, exited=(c.Exit(0, 0),)),
        c.ReportRanks(job=job, attempt=1, gone=(0,)),
    )


def busy() -> Given:
    """8 GPUs, five jobs of 240 s behind it; 7 GPUs are taken, and a gang of 8 waits for all."""
    given = Given(LEADS, e.PolicySet(EASY), node("n1", 8))
    for number in range(ENOUGH):
        ran(given, f"past{number}", 240.0)
    asks = Scheduling(estimate_s=1_000.0)
    given.when(submit("long", "long", job_of(gpus=7, scheduling=asks)))
    passed(given)
    started(given, "long")
    given.when(submit("head", "head", job_of(gpus=8, scheduling=asks)))
    return given


def test_a_job_without_an_estimate_goes_past_a_head_if_jobs_like_it_were_short():
    given = busy().when(submit("small", "small", job_of()))
    starts = [d.job for d in Pass(Snapshot(given.world, given.now)).run() if isinstance(d, Start)]
    assert starts == ["small"]


def test_why_names_the_estimate_that_was_used():
    given = busy().when(submit("wide", "wide", job_of(gpus=3)))
    estimate = why(given.world, given.job("wide")).estimate
    assert (estimate.source, estimate.jobs, estimate.planned_s) == ("learned", 5, 256.0)
    assert (estimate.median_s, estimate.p90_s) == (240.0, 240.0)
    assert estimate.alike == "same namespace and kind"
    assert why(given.world, given.job("head")).estimate.source == "estimate"


def test_what_removed_jobs_taught_is_kept_and_a_world_read_back_plans_the_same():
    given = busy()
    for number in range(ENOUGH):
        given.when(c.DeleteJob(namespace="default", name=f"past{number}"))
    assert "past0" not in given.world.jobs
    given.when(submit("small", "small", job_of()))
    again = World(given.world.image())
    for world in (given.world, again):
        assert world.estimate(world.jobs["small"]).planned_s == 256.0
    given.world.check()


def test_lines_that_let_the_shortest_go_first_follow_what_is_learned():
    shortest = Queue("default", discipline="sjffit")
    given = Given(LEADS, e.PolicySet(Policy()), e.QueueDefined(shortest), node("n1", 1))
    given.when(submit("hog", "hog", job_of(scheduling=Scheduling(estimate_s=1e6))))
    passed(given)
    started(given, "hog")
    asks = Scheduling(estimate_s=1_000.0)
    given.when(submit("stated", "stated", job_of(scheduling=asks)), submit("not", "not", job_of()))
    assert [p.job for p in given.world.waiting.keys("default")] == ["stated", "not"]
    given.when(c.CancelJob(namespace="default", name="hog"))
    given.when(c.ReportRanks(job="hog", attempt=1, gone=(0,)))
    for number in range(ENOUGH):
        ran(given, f"past{number}", 100.0, job_of(scheduling=Scheduling(estimate_s=1.0)))
    assert [p.job for p in given.world.waiting.keys("default")] == ["not", "stated"]
    given.world.check()


def test_a_job_that_outlives_its_estimate_is_planned_to_run_on():
    """Nothing is planned for the moment at which it might end, again and again."""
    given = busy()
    given.later(1_500.0)
    planner = Pass(Snapshot(given.world, given.now), lambda job, code: True)
    planner.run()
    starts = {p.job: p.starts_at for p in planner.planner.planned}
    placed_at = given.job("long").attempt.placed_at
    assert starts["head"] == placed_at + 2_000.0
