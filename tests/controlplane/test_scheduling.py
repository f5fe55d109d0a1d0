"""All or nothing, first in first out, and where a gang goes."""

from collections import Counter

from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.policy import Queue
from controlplane.model.spec import Role
from controlplane.queries.queries import why
from controlplane.scheduling.placement.packing import choose, slots, why_never_fits
from controlplane.state.devices import FreeDevices, lowest, mask_of
from tests.controlplane.specification import Given, node, on, spec, submit


def place(free: FreeDevices, of, name_of):
    """A slot for every rank of a gang without constraints, or None if it does not fit whole."""
    needs, rank = [], 0
    for role in of.roles:
        needs += [(role.gpus, r) for r in range(rank, rank + role.replicas) if role.gpus]
        rank += role.replicas
    chosen = choose(free, sorted(needs, key=lambda need: -need[0]))
    return None if chosen is None else slots(free, chosen, of.size, name_of)


def placed(given: Given) -> list[str]:
    return [event.job for event in given.when_scheduled().decided]


def test_a_gang_that_does_not_fit_whole_gets_nothing():
    given = Given(node("n1", 8), node("n2", 4)).when(submit(of=spec(workers=2, gpus=4)))
    given.when_scheduled().then(e.GangPlaced("j1", 1, on(("n1", range(4)), ("n1", range(4, 8)))))
    given.when(submit("two", "j2", spec(workers=2, gpus=3)))

    given.when_scheduled().then()

    assert given.world.devices.free.total == 4


def test_the_head_of_a_queue_is_not_overtaken():
    given = Given(node()).when(
        submit("a", "j1", spec(workers=1, gpus=6)),
        submit("b", "j2", spec(workers=1, gpus=4)),
        submit("c", "j3", spec(workers=1, gpus=1)),
    )

    assert placed(given) == ["j1"]
    assert why(given.world, given.job("j3")).place_in_queue == 2


def test_a_blocked_queue_does_not_hold_up_another():
    given = Given(node(), e.QueueDefined(Queue("other"))).when(
        submit("a", "j1", spec(workers=1, gpus=6)),
        submit("b", "j2", spec(workers=1, gpus=4)),
        submit("c", "j3", spec(workers=1, gpus=1, queue="other")),
    )

    assert placed(given) == ["j1", "j3"]


def test_a_higher_priority_goes_first_and_equals_in_order():
    given = Given(node()).when(
        submit("a", "j1", spec(workers=1, gpus=4)),
        submit("b", "j2", spec(workers=1, gpus=4)),
        submit("c", "j3", spec(workers=1, gpus=4, priority=5)),
    )

    assert placed(given) == ["j3", "j1"]


def test_a_queue_stays_under_its_ceiling():
    given = Given(node(), e.QueueDefined(Queue("small", gpus_max=4))).when(
        submit("a", "j1", spec(workers=1, gpus=3, queue="small")),
        submit("b", "j2", spec(workers=1, gpus=3, queue="small")),
    )

    assert placed(given) == ["j1"]
    reason = why(given.world, given.job("j2")).reasons[0]
    assert (reason.code, reason.needed, reason.available) == ("queue_limit", 3, 1)


def test_a_small_gang_goes_where_it_fills_best():
    given = Given(node("n1", 8), node("n2", 4)).when(submit(of=spec(workers=2, gpus=2)))

    given.when_scheduled().then(e.GangPlaced("j1", 1, on(("n2", (0, 1)), ("n2", (2, 3)))))


def test_a_large_gang_spans_few_nodes():
    nodes = [node("n1", 4), node("n2", 8), node("n3", 8)]
    given = Given(*nodes).when(submit(of=spec(workers=5, gpus=4))).when_scheduled()

    slots = [slot.node for slot in given.decided[0].placement]
    assert slots == ["n2", "n2", "n3", "n3", "n1"]


def test_ranks_without_gpus_go_along():
    roles = (Role(name="PS", replicas=2, is_server=True), Role(name="Worker", gpus=8))
    given = Given(node("n1", 4), node("n2", 8)).when(submit(of=spec(roles=roles)))

    given.when_scheduled()

    assert given.decided[0].placement == on(("n2", ()), ("n2", ()), ("n2", range(8)))


def test_a_gang_without_gpus_needs_a_node_all_the_same():
    given = Given().when(submit(of=spec(gpus=0)))
    assert placed(given) == []
    given.happened(node())
    assert placed(given) == ["j1"]


def test_why_distinguishes_lack_of_room_from_fragmentation():
    given = Given(node("n1"), node("n2")).when(
        submit("a", "j1", spec(workers=1, gpus=5)),
        submit("b", "j2", spec(workers=1, gpus=5)),
    )
    given.when_scheduled().when(submit("c", "j3", spec(workers=1, gpus=4)))
    assert why(given.world, given.job("j3")).reasons[0].code == "fragmented"
    given.when(
        c.CancelJob(namespace="default", name="c"), submit("d", "j4", spec(workers=1, gpus=7))
    )
    assert why(given.world, given.job("j4")).reasons[0].code == "insufficient_capacity"


nodes_of = st.lists(st.integers(0, 8), min_size=1, max_size=6)
roles_of = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), min_size=1, max_size=3)


def gang(roles):
    return spec(
        roles=tuple(Role(name=f"r{i}", replicas=n, gpus=g) for i, (n, g) in enumerate(roles))
    )


def empty_cluster(nodes):
    free = FreeDevices()
    for ordinal, gpus in enumerate(nodes):
        free.set_node(ordinal, (1 << gpus) - 1, is_open=True)
    return free


@hypothesis_given(nodes_of, roles_of)
def test_a_placement_is_whole_disjoint_and_within_the_nodes(nodes, roles):
    of = gang(roles)
    free = empty_cluster(nodes)
    before = free.masks.copy()

    placement = place(free, of, str)

    assert free.masks == before
    if placement is None:
        return
    assert len(placement) == of.size
    taken: set[tuple[str, int]] = set()
    for rank, slot in enumerate(placement):
        assert len(slot.devices) == of.role_of(rank)[0].gpus
        for device in slot.devices:
            assert device < nodes[int(slot.node)]
            assert (slot.node, device) not in taken
            taken.add((slot.node, device))


@hypothesis_given(nodes_of, roles_of)
def test_a_gang_judged_never_to_fit_is_not_placed_on_an_empty_cluster(nodes, roles):
    of = gang(roles)
    if why_never_fits(of, Counter(nodes)):
        assert place(empty_cluster(nodes), of, str) is None


@hypothesis_given(nodes_of, st.integers(1, 5), st.integers(1, 8))
def test_a_gang_of_equal_ranks_is_placed_whenever_it_fits(nodes, ranks, gpus):
    of = spec(workers=ranks, gpus=gpus)
    fits = sum(n // gpus for n in nodes) >= ranks

    assert (place(empty_cluster(nodes), of, str) is not None) == fits
    assert (why_never_fits(of, Counter(nodes)) is None) == fits


@hypothesis_given(st.integers(0, 2**16), st.integers(0, 16))
def test_the_lowest_devices_are_taken_first(mask, count):
    devices = lowest(mask, min(count, mask.bit_count()))
    assert mask_of(devices) & ~mask == 0
    assert list(devices) == sorted(devices)
