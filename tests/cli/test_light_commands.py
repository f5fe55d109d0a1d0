"""Commands that only ask a server do not load one: each takes as long as what it imports."""

import subprocess
import sys

import pytest

ASKING = (
    "cli.jobs.jobs",
    "cli.jobs.job_events",
    "cli.jobs.job_logs",
    "cli.jobs.changes",
    "cli.cluster.cluster",
    "cli.cluster.policy",
    "cli.jobs.submit",
    "cli.cluster.top",
)
HEAVY = (
    "aiohttp.web",
    "controlplane.engine",
    "controlplane.state.world",
    "numpy",
    "simpy",
    "simulator",
)


@pytest.mark.parametrize("module", ASKING)
def test_a_command_that_asks_a_server_does_not_load_one(module: str) -> None:
    program = (
        f"import sys, cli.main, {module}\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
