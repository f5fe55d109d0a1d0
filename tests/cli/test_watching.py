"""`--watch`: lines without a terminal, a picture in a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.conftest import Muster

WATCH_S_MAX = 20


@contextmanager
def watching(*words: str, **how: object) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "cli.main", *words]
    process = subprocess.Popen(command, text=True, **how)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(WATCH_S_MAX)
        assert process.returncode == 130
        if process.stdout is not None:
            process.stdout.close()


def test_into_a_pipe_each_change_is_a_line(
    muster: Muster, server: str, manifest: Callable[..., Path]
) -> None:
    muster("submit", manifest("early", duration_s=1_000_000))
    with watching("list", "--watch", "--url", server, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "default/early" in process.stdout.readline()
        muster("submit", manifest("late", exit_code=1))
        seen = ""
        while "default/late  Failed" not in seen:
            line = process.stdout.readline()
            assert line, "the watcher ended"
            seen += line
        muster("delete", "late")
        while "default/late is gone" not in seen:
            seen += process.stdout.readline()


def test_in_a_terminal_the_table_is_painted_again(
    muster: Muster, server: str, manifest: Callable[..., Path]
) -> None:
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": "90", "LINES": "30", "TERM": "xterm"}
    muster("submit", manifest("one", duration_s=1_000_000))
    with watching("list", "--watch", "--url", server, stdout=follower, env=env):
        os.close(follower)
        assert "one" in until(leader, "Running")
        muster("suspend", "one")
        assert "Suspended" in until(leader, "Suspended")
    os.close(leader)


def until(terminal: int, word: str) -> str:
    """What the terminal shows until the word has come."""
    shown = ""
    while word not in shown:
        ready, _, _ = select.select([terminal], [], [], WATCH_S_MAX)
        assert ready, f"{word} did not come: {shown}"
        shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(terminal, 65536).decode())
    return shown
