"""Adding an event about a job touches two files: `model/events.py` and `lifecycle/job.py`.

The test adds one to a copy of the control plane and uses it everywhere that an event goes: the table,
the codec, replay, the page of states, the text of `muster events`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# In `controlplane/model/events.py`: what the event is, and where it may happen.
DECLARATION = '''class JobNoted(JobEvent, frozen=True):
    """A person wrote a note on a job that runs."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    wakes_scheduler = True
    is_input = True

    note: str


def _concrete('''

# In `controlplane/lifecycle/job.py`: what it makes of a job.
EVOLUTION = """

def _noted(job: Job, event: e.JobNoted, at: float, position: int) -> Job:
    return replace(job, commits=(*job.commits, event.note))


EVOLVE[e.JobNoted] = _noted
"""

USE = """
import sys
from pathlib import Path

sys.path.insert(0, "docs")

from controlplane.event_messages import describe
from controlplane.decisions.autonomous import makes_room
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import GENESIS
from controlplane.state.state import State
from controlplane.state.world import World
from draw_states import draw
from tests.controlplane.specification import BOTH_ON_N1, node, spec

assert Path(codec.__file__).is_relative_to(Path.cwd()), codec.__file__
noted = e.JobNoted("j1", "look at rank 3")
past = [node(), e.JobSubmitted("j1", "default", "train", spec()), e.GangPlaced("j1", 1, BOTH_ON_N1)]


def log(*events):
    return [e.Recorded(n, 1.0, event) for n, event in enumerate(events, start=1)]


state = State()
fold(state, codec.to_rows(log(*past, noted), GENESIS), GENESIS)
assert state.jobs["j1"].commits == ("look at rank 3",)
try:
    fold(State(), codec.to_rows(log(*past[:2], noted, past[2]), GENESIS), GENESIS)
except LogCorrupt as refusal:
    assert refusal.position == 3, refusal
else:
    raise AssertionError("a note on a queued job was taken")
world = World()
for recorded in log(*past, noted):
    world.apply(recorded)
world.check()
assert makes_room(world, [noted])
assert "| `JobNoted` | Starting, Running |" in draw()
assert describe(noted) == "noted"
"""


def test_an_event_about_a_job_is_added_in_two_files(tmp_path):
    for folder in ("controlplane", "cli", "docs", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "golden", "node_modules")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    events = tmp_path / "controlplane/model/events.py"
    before = events.read_text()
    assert before.count("def _concrete(") == 1
    events.write_text(before.replace("def _concrete(", DECLARATION))
    job = tmp_path / "controlplane/lifecycle/job.py"
    job.write_text(job.read_text() + EVOLUTION)
    ran = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


def test_an_event_without_declared_phases_is_no_event():
    """The table is built from the declarations, so a class that lacks one cannot be imported."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import controlplane.model.events as e\n"
            "class JobNoted(e.JobEvent, frozen=True): note: str\n"
            "e.JOB_EVENTS += (JobNoted,)\n"
            "import controlplane.lifecycle.transitions\n",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "has no attribute 'allowed_in'" in ran.stderr
