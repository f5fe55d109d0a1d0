"""A throw-away PostgreSQL server: its own data, port and socket, gone when the block ends.

Durability stays on as in production, so benchmarks may use it too. Only this machine can reach it.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S_MAX = 30.0
STOP_S_MAX = 15.0
PORTS_TRIED_MAX = 5


class PostgresMissing(Exception):
    """The server's programs are not installed."""


class PostgresFailed(Exception):
    """The server did not start; the message ends with its log."""


@contextmanager
def throwaway_postgres() -> Iterator[str]:
    """The URL of a fresh server, which is stopped and deleted at the end whatever happens."""
    programs = _programs()
    identity = _identity()
    with tempfile.TemporaryDirectory(prefix="muster-postgres-") as name:
        folder = Path(name)
        if identity:
            shutil.chown(folder, identity["user"], identity["group"])
        _initdb(programs, folder, identity)
        process, port = _start(programs, folder, identity)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            _stop(process)


def _programs() -> Path:
    # Debian keeps them off the PATH; what is on it may be a wrapper that starts something else.
    folders = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not folders:
        raise PostgresMissing(
            "PostgreSQL's initdb is not in /usr/lib/postgresql/*/bin; "
            "run deploy/install-system-packages.sh"
        )
    return max(folders, key=lambda programs: float(programs.parent.name))


def _identity() -> dict[str, str]:
    # PostgreSQL refuses to run as root; Debian's package brings the user postgres.
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and the like would point the programs at another server.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C.UTF-8"}


def _initdb(programs: Path, folder: Path, identity: dict[str, str]) -> None:
    # Only the empty cluster is written without fsync; the server's own writes are synced.
    command = [programs / "initdb", "--pgdata", folder / "data", "--username", "postgres"]
    command += ["--auth", "trust", "--encoding", "UTF8", "--no-sync", "--no-instructions"]
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, **identity
    )
    if done.returncode != 0:
        raise PostgresFailed(f"initdb failed:\n{done.stdout}{done.stderr}")


def _start(
    programs: Path, folder: Path, identity: dict[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    # Between choosing a free port and using it another process may take it: then take another.
    for _ in range(PORTS_TRIED_MAX):
        port = _free_port()
        process = _spawn(programs, folder, identity, port)
        try:
            if _ready(process, programs, folder, port):
                return process, port
        except BaseException:
            _stop(process)
            raise
        _stop(process)
    raise PostgresFailed(f"postgres did not start:\n{(folder / 'log').read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spawn(
    programs: Path, folder: Path, identity: dict[str, str], port: int
) -> subprocess.Popen[bytes]:
    command = [programs / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder]
    command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=on"]
    # setpriv lets the kernel stop the server when this process is killed and can not.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "INT", *command]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env=_environment(), stdout=log, stderr=log, **identity
        )


def _ready(process: subprocess.Popen[bytes], programs: Path, folder: Path, port: int) -> bool:
    # Asked over the socket in our own folder, no other server can answer.
    ask = [programs / "pg_isready", "--quiet", "--host", folder, "--port", str(port)]
    deadline = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < deadline:
        if subprocess.run(ask, env=_environment()).returncode == 0:
            return True
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    # SIGINT disconnects clients and shuts down; SIGQUIT does not wait for anything.
    for ask in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(ask)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            continue
