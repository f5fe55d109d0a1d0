"""Daemons that outlive the command that started them; their pids are in the state folder."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.testcluster.places import Trouble


def start(
    folder: Path, name: str, words: Sequence[str], env: Mapping[str, str] | None = None
) -> int:
    """Start a daemon with its output in FOLDER/log/NAME.log, unless it runs already."""
    running = pid_of(folder, name)
    if running is not None:
        return running
    (folder / "log").mkdir(parents=True, exist_ok=True)
    with log_of(folder, name).open("ab") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=None if env is None else dict(env), cwd=folder,
        )  # fmt: skip
    _pid_file(folder, name).write_text(f"{process.pid} {_started(process.pid)}")
    # It outlives this process; this keeps Python from warning that it was not waited for.
    process.returncode = 0
    return process.pid


def pid_of(folder: Path, name: str) -> int | None:
    """Return the pid of that name if it still is the process that was started, else None."""
    try:
        pid, started = map(int, _pid_file(folder, name).read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if _started(pid) == started else None


def child_of(pid: int) -> int:
    """Return the only child of a process that makes one in a namespace, such as unshare."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: children.exists() and bool(children.read_text().split()), 5, "a child process")
    return int(children.read_text().split()[0])


def stop(folder: Path, name: str, patience_s: float = 3.0) -> None:
    """Send SIGTERM, and SIGKILL to what has not ended in time."""
    pid = pid_of(folder, name)
    if pid is not None:
        _signal(pid, signal.SIGTERM)
        if not _ends(folder, name, patience_s):
            kill(folder, name)
    _pid_file(folder, name).unlink(missing_ok=True)


def kill(folder: Path, name: str) -> None:
    pid = pid_of(folder, name)
    if pid is not None:
        _signal(pid, signal.SIGKILL)
        _ends(folder, name, 3.0)
    _pid_file(folder, name).unlink(missing_ok=True)


def until(reached: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise Trouble(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.05)


def log_of(folder: Path, name: str) -> Path:
    return folder / "log" / f"{name}.log"


def tail(folder: Path, name: str, size: int = 2000) -> str:
    path = log_of(folder, name)
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


def _ends(folder: Path, name: str, seconds: float) -> bool:
    try:
        until(lambda: pid_of(folder, name) is None, seconds, name)
    except Trouble:
        return False
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _pid_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"


def _started(pid: int) -> int:
    """Return the start time of a process in kernel ticks; 0 if there is none or it is a zombie."""
    try:
        # Reap it in case it is a zombie child of this process.
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])
