"""What holds for the scheduler whatever the cluster, the queues, the policy and the jobs are."""

import os
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.messages import wait_text
from controlplane.model.phases import ACTIVE, Phase
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk
from controlplane.scheduling.decisions import Claim, Evict, KeepWaiting, Start
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World
from tests.controlplane.scheduling_worlds import (
    QUEUES,
    Sandbox,
    clusters,
    policies,
    specs,
    trees,
)
from tests.controlplane.slow_reference import can_place, slow_starts
from tests.controlplane.specification import spec

# Worlds for each property; more are tried with more time.
EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
jobs_of = st.lists(specs(), min_size=1, max_size=8)


def sandbox(nodes, queues, policy, jobs) -> Sandbox:
    box = Sandbox(nodes, queues, policy)
    for number, job in enumerate(jobs):
        box.submit(f"j{number}", job)
    return box


@given(clusters, trees(), policies(), jobs_of, st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_passes_come_to_rest_with_whole_gangs_within_quota(nodes, queues, policy, jobs, data):
    """No device twice and no part of a gang (`world.check`), quotas kept, and no flapping."""
    box = sandbox(nodes, queues, policy, jobs)
    box.settle()
    check_quotas(box.world)
    for job in [j for j in box.world.jobs.values() if j.phase in ACTIVE][:2]:
        box.finish(job.id)
    box.submit("late", data.draw(specs()))
    box.settle()
    check_quotas(box.world)


def check_quotas(world: World) -> None:
    snapshot = Snapshot(world)
    tree = snapshot.tree()
    for name, branch in tree.branches.items():
        assert branch.used_below <= branch.ceiling, name
        if world.policy.model in ("quota_classic", "quota_fair") and not branch.free_for_all:
            if branch.parent is None:
                assert branch.used <= branch.subtree, name
            elif branch.borrow_max is not None:
                assert branch.used <= branch.subtree + branch.borrow_max, name
    for gang in map(snapshot.gang, [i for line in world.devices.holders.values() for i in line]):
        attempt = world.jobs[gang.id].attempt
        assert len(attempt.placement) == gang.size or gang.elastic is not None


@given(clusters, trees(), policies(), jobs_of)
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_same_world_gives_the_same_decisions(nodes, queues, policy, jobs):
    """Also when it was read back from a snapshot, with every index built anew."""
    box = sandbox(nodes, queues, policy, jobs)
    box.one_pass()
    again = World(box.world.image())

    def decided(world: World) -> list[object]:
        return list(Pass(Snapshot(world, world.at), lambda job, code: True).run())

    assert decided(box.world) == decided(again) == decided(box.world)


@given(clusters, trees(), policies(), jobs_of)
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_job_is_evicted_unless_another_is_then_promised_a_place(nodes, queues, policy, jobs):
    box = sandbox(nodes, queues, policy, jobs)
    for _ in range(3):
        decisions = box.one_pass()
        promised = {d.job for d in decisions if isinstance(d, Claim)}
        evicted = [d for d in decisions if isinstance(d, Evict)]
        assert {d.preemptor for d in evicted} <= promised
        assert len({d.job for d in evicted}) == len(evicted)
        check_disjoint(decisions)


def check_disjoint(decisions) -> None:
    """No device is given or promised to two gangs in one pass."""
    taken: dict[tuple[str, int], str] = {}
    for decision in decisions:
        if isinstance(decision, Start | Claim) and not decision.fit.shares:
            for slot in decision.fit.placement:
                for device in slot.devices:
                    owner = taken.setdefault((slot.node, device), decision.job)
                    assert owner == decision.job, (slot, owner, decision.job)


# No preemption, and no job gets a reason why it waits.
CALM = st.builds(
    Policy,
    model=st.sampled_from(["quota_classic", "progressive_filling"]),
    discipline=st.sampled_from([d for d in DISCIPLINES.names if d != "tiresias"]),
    records_reasons=st.just(False),
)


@given(clusters, CALM, st.lists(specs(), min_size=1, max_size=12), st.data())
@settings(max_examples=3 * EXAMPLES, deadline=None)
def test_a_pass_that_counting_finds_in_vain_is_in_vain(nodes, policy, jobs, data):
    """`Sandbox.look` compares them at each pass, also when some have ended."""
    box = sandbox(nodes, [Queue(name) for name in QUEUES], policy, jobs)
    box.settle()
    running = [job.id for job in box.world.jobs.values() if job.phase in ACTIVE]
    for job in running:
        if data.draw(st.booleans()):
            box.finish(job)
            box.settle()


@pytest.mark.parametrize("discipline", ["fifo", "fit", "easy"])
@pytest.mark.parametrize(
    "role",
    [
        Role(name="worker", replicas=2, gpus=2),
        Role(name="worker", replicas=4, gpus=2, min_replicas=1),
        Role(name="worker", gpu_share=500),
        Role(name="worker"),
    ],
)
def test_a_job_that_could_just_start_is_not_judged_hopeless(discipline: str, role: Role) -> None:
    policy = Policy(discipline=discipline, records_reasons=False)
    box = Sandbox([(4, "a")], [Queue("q")], policy)
    box.submit("it", spec_of(role, priority=0, preemptible=True))
    assert [decision.job for decision in box.look()] == ["it"]


def test_no_job_is_preempted_for_one_that_its_quota_keeps_out_anyway():
    """Its queue's ceiling is in the way as well, and the one it would evict starts again at once."""
    policy = Policy(discipline="fit", model="deserved_plus_weight")
    box = Sandbox([(3, "a")], [Queue("q", gpus_max=3, nominal=0)], policy)
    small = Role(name="worker", gpu_share=250)
    box.submit("small", spec_of(small, priority=-1, preemptible=True))
    box.submit("fixed", spec_of(Role(name="worker", gpus=3), priority=0, preemptible=False))
    assert box.settle() <= 2
    assert box.evictions == 0
    assert [job.id for job in box.world.jobs.values() if job.phase in ACTIVE] == ["small"]


def spec_of(role: Role, *, priority: int, preemptible: bool) -> JobSpec:
    return JobSpec(
        roles=(role,),
        done_when=DoneWhen(role.name),
        queue="q",
        priority=priority,
        scheduling=Scheduling(preemptible=preemptible),
    )


@given(clusters, trees(), policies(), jobs_of)
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_waiting_job_has_a_reason(nodes, queues, policy, jobs):
    box = sandbox(nodes, queues, policy, jobs)
    box.settle()
    decisions = Pass(Snapshot(box.world), lambda job, code: True).run()
    explained = {d.job for d in decisions if isinstance(d, KeepWaiting) and wait_text(d.reasons[0])}
    promised = {d.job for d in decisions if isinstance(d, Claim | Start)}
    waiting = {job.id for job in box.world.jobs.values() if job.phase is Phase.QUEUED}
    assert waiting <= explained | promised


plain_jobs = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(-1, 1)), min_size=1, max_size=7
)
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def plain(ranks: int, gpus: int, priority: int) -> JobSpec:
    return spec(workers=ranks, gpus=gpus, priority=priority)


@given(sizes, plain_jobs, st.sampled_from(["fifo", "fit"]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_starts_agree_with_a_slow_reference(nodes, jobs, discipline):
    box = Sandbox([(n, "") for n in nodes], [], Policy(discipline=discipline))
    for number, job in enumerate(jobs):
        box.submit(f"j{number}", plain(*job))
    fits = {d.job: d.fit for d in box.look() if isinstance(d, Start)}
    order = sorted(range(len(jobs)), key=lambda n: (-jobs[n][2], n))
    expected = slow_starts(
        {f"n{number}": gpus for number, gpus in enumerate(nodes)},
        [(f"j{n}", *jobs[n][:2]) for n in order],
        {job: fit.placement for job, fit in fits.items()},
        strict=discipline == "fifo",
    )
    assert list(fits) == expected


mixed = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=2, max_size=3)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), mixed, st.booleans())
@example([5, 6], [(1, 5), (2, 3)], False)
@example([5, 6], [(1, 5), (2, 3)], True)
@example([7, 6], [(1, 6), (1, 4), (1, 3)], False)
@settings(max_examples=10 * EXAMPLES, deadline=None)
def test_a_gang_of_different_ranks_starts_if_there_is_any_way_to_place_it(nodes, roles, choosy):
    """Against every way to give its ranks out; also where a selector leaves all nodes to it."""
    box = Sandbox([(n, "") for n in nodes], [], Policy())
    asked = tuple(
        Role(name=f"r{i}", replicas=ranks, gpus=gpus) for i, (ranks, gpus) in enumerate(roles)
    )
    asks = Scheduling(topology=TopologyAsk(preferred="rack")) if choosy else Scheduling()
    box.submit("mixed", replace(spec(), roles=asked, done_when=DoneWhen("r0"), scheduling=asks))
    starts = [d for d in box.look() if isinstance(d, Start)]
    needs = [gpus for ranks, gpus in roles for _ in range(ranks)]
    assert bool(starts) == can_place(sorted(nodes), needs)
    check_disjoint(starts)


@given(sizes, plain_jobs, st.tuples(st.integers(1, 4), st.integers(1, 4)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_victims_are_sufficient_necessary_and_chosen_if_there_are_any(nodes, jobs, wanted):
    """Against every subset of the candidates, tried one by one."""
    rules = Preempt(within_queue=WithinQueue.LOWER)
    policy = Policy(discipline="fit", preempt=rules)
    box = Sandbox([(n, "") for n in nodes], [], policy)
    for number, (ranks, gpus, _) in enumerate(jobs):
        box.submit(f"j{number}", plain(ranks, gpus, 0))
    box.settle()
    box.submit("urgent", plain(*wanted, 5))
    decisions = box.look()
    if any(isinstance(d, Start) and d.job == "urgent" for d in decisions):
        return
    victims = {d.job for d in decisions if isinstance(d, Evict)}
    running = [job.id for job in box.world.jobs.values() if job.phase in ACTIVE]

    def enough(gone: set[str]) -> bool:
        free = {n.name: n.info.gpus for n in box.world.nodes.values()}
        for job in running:
            if job not in gone:
                for slot in box.world.jobs[job].attempt.placement:
                    free[slot.node] -= len(slot.devices)
        return can_place(sorted(free.values()), [wanted[1]] * wanted[0])

    if victims:
        assert enough(victims)
        assert not any(enough(victims - {victim}) for victim in victims)
    else:
        subsets = (set(s) for n in range(len(running) + 1) for s in combinations(running, n))
        assert not any(enough(subset) for subset in subsets)


@given(sizes, plain_jobs)
@settings(max_examples=EXAMPLES, deadline=None)
def test_in_a_strict_queue_every_job_that_can_run_does_in_the_end(nodes, jobs):
    check_no_job_starves(nodes, jobs, "fifo")


@given(sizes, plain_jobs, st.sampled_from(["easy", "conservative"]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_with_planned_starts_every_job_that_can_run_does_in_the_end(nodes, jobs, discipline):
    check_no_job_starves(nodes, jobs, discipline)


def check_no_job_starves(nodes, jobs, discipline) -> None:
    box = Sandbox([(n, "") for n in nodes], [], Policy(discipline=discipline))
    possible = [job for job in jobs if can_place(sorted(nodes), [job[1]] * job[0])]
    for number, job in enumerate(possible):
        box.submit(f"j{number}", plain(*job))
    for _ in range(len(possible) + 1):
        box.settle()
        active = [job.id for job in box.world.jobs.values() if job.phase in ACTIVE]
        for job in active[:1]:
            box.finish(job)
    for _ in range(len(possible)):
        box.settle()
        for job in [j.id for j in box.world.jobs.values() if j.phase in ACTIVE]:
            box.finish(job)
    assert {job.phase for job in box.world.jobs.values()} <= {Phase.SUCCEEDED}


def test_a_planned_start_is_kept_though_others_go_past():
    """The head gets its place at the very time it was planned for, with estimates that hold."""
    policy = Policy(discipline="easy")
    box = Sandbox([(8, "")], [], policy)

    def lasting(ranks: int, gpus: int, seconds: float) -> JobSpec:
        asks = spec().scheduling.__class__(estimate_s=seconds)
        return spec(workers=ranks, gpus=gpus, scheduling=asks)

    box.submit("runs", lasting(1, 4, 100.0))
    box.one_pass()
    box.submit("head", lasting(1, 8, 10.0))
    box.submit("short", lasting(1, 2, 50.0))
    box.submit("long", lasting(1, 2, 500.0))
    started = {d.job for d in box.one_pass() if isinstance(d, Start)}
    assert started == {"short"}
