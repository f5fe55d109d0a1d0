"""Studies of a limit on starts: it is a part of the policy's name."""

import pytest

from controlplane.audit.redecide import DecisionVerifier
from controlplane.state.world import World
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import policy_named
from studies.whatif.whatif import WhatIf, ask
from studies.workloads.trace import make_trace

BURST = make_trace("burst", [str(n) for n in range(10)], [0] * 10, [1] * 10, [100] * 10)


def test_a_burst_starts_cycle_by_cycle() -> None:
    free = run(BURST, equal_nodes(2, 8), policy_named("fifo"))
    slow = run(BURST, equal_nodes(2, 8), policy_named("fifo+starts=4/5s"), keep_events=True)
    assert list(free.finished) == [100.0] * 10
    assert list(slow.finished) == [100.0] * 4 + [105.0] * 4 + [110.0] * 2
    assert slow.log is not None
    verifier = DecisionVerifier(World())
    verifier.take(slow.log)
    verifier.finish()


def test_a_limit_goes_with_a_packing() -> None:
    policy = policy_named("easy+spread+starts=10/0.5s")
    assert policy.name == "easy+spread+starts=10/0.5s"
    limit = policy.policy.starts_per_cycle_max, policy.policy.cycle_s, policy.policy.packing
    assert limit == (10, 0.5, "spread")
    assert policy_named("fifo+starts=10").name == "fifo+starts=10/1s"


@pytest.mark.parametrize(
    "name",
    ["fifo+starts", "fifo+starts=", "fifo+starts=0", "fifo+starts=-1", "fifo+starts=2/0s", "fifo+starts=2/xs",
     "fifo+starts=1+starts=2", "fifo+spread+pack", "fifo+start=2", "fifo+", "fifo+starts=2/0.001s"],
)  # fmt: skip
def test_what_is_no_limit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"starts|packing"):
        policy_named(name)


def test_a_question_compares_limits(tmp_path) -> None:
    path = tmp_path / "jobs.csv"
    rows = "".join(f"{n},0,1,100\n" for n in range(10))
    path.write_text("id,submit,gpus,duration\n" + rows)
    question = WhatIf(trace=str(path), nodes=("2x8",), policies=("fifo", "fifo+starts=2"))
    ask(question, tmp_path / "out")
    assert "fifo+starts=2/1s" in (tmp_path / "out" / "result.json").read_text()
