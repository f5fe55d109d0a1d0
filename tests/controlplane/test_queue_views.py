"""What a queue view shows of quotas: borrowed and lent."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.model.policy import Policy, Queue
from controlplane.queries.queries import queue_view
from controlplane.scheduling.quota.tree import QuotaTree, borrowed, lent
from tests.controlplane.scheduling_worlds import Sandbox
from tests.controlplane.specification import spec


def test_a_view_shows_what_is_borrowed_and_lent() -> None:
    lab = Queue("lab")
    team, other = Queue("team", parent="lab", nominal=2), Queue("other", parent="lab", nominal=6)
    box = Sandbox([(8, "")], [lab, team, other], Policy())
    box.submit("a", spec(workers=1, gpus=5, queue="team"))
    box.one_pass()

    views = {name: queue_view(box.world, name) for name in ("team", "other", "default")}

    numbers = {name: (v.gpus_used, v.gpus_borrowed, v.gpus_lent) for name, v in views.items()}
    assert numbers == {"team": (5, 3, 0), "other": (0, 0, 3), "default": (0, 0, 0)}
    assert views["other"].discipline == "fifo"


def test_lenders_lend_in_proportion_to_what_they_have_idle() -> None:
    queues = [Queue("lab"), Queue("a", parent="lab", nominal=1)]
    queues += [Queue("b", parent="lab", nominal=6), Queue("c", parent="lab", nominal=3)]
    tree = QuotaTree({queue.name: queue for queue in queues})
    tree.add("a", 4_000)

    assert [lent(tree.branches[name]) for name in "abc"] == [0, 2_000, 1_000]


def test_a_lending_limit_and_quota_of_the_cohort_reduce_what_is_lent() -> None:
    queues = [Queue("lab", nominal=1), Queue("a", parent="lab", nominal=0)]
    queues += [Queue("b", parent="lab", nominal=6, lend_max=2)]
    tree = QuotaTree({queue.name: queue for queue in queues})
    tree.add("a", 3_000)

    assert lent(tree.branches["b"]) == 2_000


quotas = st.integers(0, 8)


@given(st.lists(st.tuples(quotas, quotas), min_size=2, max_size=5))
def test_what_is_borrowed_in_a_cohort_is_lent_in_it(rows: list[tuple[int, int]]) -> None:
    names = [f"q{number}" for number in range(len(rows))]
    queues = [Queue("lab")]
    queues += [Queue(n, parent="lab", nominal=q) for n, (q, _) in zip(names, rows, strict=True)]
    tree = QuotaTree({queue.name: queue for queue in queues})
    for name, (_, used) in zip(names, rows, strict=True):
        tree.add(name, min(used * 1_000, max(0, tree.available(name))))
    branches = [tree.branches[name] for name in names]

    difference = sum(map(borrowed, branches)) - sum(map(lent, branches))

    # Each lender's part is rounded down to a thousandth.
    assert 0 <= difference < len(branches)
    assert all(lent(branch) <= max(0, branch.subtree - branch.used) for branch in branches)
