"""Checkpoints and restarts, against the formula of Young and Daly's kind."""

from dataclasses import replace

import pytest

from simulator.faults import FaultModel
from simulator.network.topology import Delays
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import policy_named
from studies.whatif.scenario_parts import Checkpoints
from studies.workloads.trace import make_trace

HOUR = 3_600.0
JOBS = 600


@pytest.mark.parametrize(("every_h", "expected_h"), [(0.5, 107.9042), (1, 105.1187), (4, 106.1006)])
def test_work_with_interruptions_takes_as_long_as_in_the_formula(every_h, expected_h):
    """100 h of work, an interruption every 44.8 h, 2 min to save, 15 min to start again.

    M exp(R/M) (exp((tau+d)/M) - 1) W/tau, where interruptions may strike during a restart.
    """
    cluster = equal_nodes(JOBS, 8, delays=Delays(start_s=900.0, stop_s=0.0))
    faults = FaultModel(node_mtbf_s=44.8125 * HOUR, node_repair_s=0.01)
    cluster = cluster.with_model(replace(cluster.model, faults=faults, seed=3))
    ids = [str(i) for i in range(JOBS)]
    trace = make_trace("t", ids, [0] * JOBS, [8] * JOBS, [100 * HOUR] * JOBS)
    plan = Checkpoints(every_s=every_h * HOUR, write_s=120.0)

    result = run(trace, cluster, policy_named("fifo"), checkpoints=plan, places=False)

    # The formula begins when the job first computes.
    took_h = (result.finished.mean() - 900.0) / HOUR
    assert took_h == pytest.approx(expected_h, rel=0.01)
    assert result.restarts.mean() > 2
