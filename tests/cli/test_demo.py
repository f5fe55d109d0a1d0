"""The guided tour does what it says."""

import subprocess
import sys

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
