"""The guided tour does what it announces."""

import json
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cli.conftest import EXAMPLES


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_demo_keeps_its_promises() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")], capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  yes  ") == 6
    assert "NO " not in done.stdout
    assert "bert-pretrain: the gang restarts" in done.stdout


@pytest.mark.timeout(60)
def test_a_busy_day_is_there_within_seconds_and_ends_on_a_signal() -> None:
    words = [sys.executable, "-m", "cli.main", "demo", "--port", "0", "--no-browser"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(line.split()[-1] for line in server.stdout if "busy day" in line)
        jobs: list[object] = []
        while len(jobs) < 10:
            with urllib.request.urlopen(f"{address}v1/jobs?phase=Running", timeout=10) as answer:
                jobs = json.load(answer)["items"]
        # A fault of the script happens a quarter of an hour after the begin of the day.
        lost: set[str] = set()
        while "rack-b-2" not in lost:
            where = f"{address}v1/history/marks?kind=node_lost"
            with urllib.request.urlopen(where, timeout=10) as answer:
                lost = {mark["node"] for mark in json.load(answer)["items"]}
            time.sleep(0.2)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
        server.communicate()
