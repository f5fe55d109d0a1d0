"""`muster up` as people run it: a process that starts, prints its address, and stops cleanly."""

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cli.log.sources import Kind, Source
from cli.server.assembly import Wanted, assembled
from cli.server.simulated import simulated_cluster
from simulator.network.topology import grid
from tests.cli.conftest import EXAMPLES, Muster
from tests.cli.logs import recorded, sqlite_log

UP = [sys.executable, "-m", "cli.main", "up", "--port", "0"]
START_S_MAX = 20


@contextmanager
def up(*words: object) -> "Iterator[Server]":
    process = subprocess.Popen(
        [*UP, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.communicate()


class Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.banner = ""
        assert process.stdout is not None
        for line in process.stdout:
            self.banner += line
            if line.startswith("Try: "):
                break
        else:
            raise AssertionError(process.communicate()[1])
        self.url = next(x.split()[1] for x in self.banner.splitlines() if x.startswith("  API"))

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=START_S_MAX) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=START_S_MAX)
        return self.process.returncode, errors


def refused(*words: object) -> tuple[int, str]:
    """Starts a server that is expected not to start."""
    done = subprocess.run(
        [*UP, *map(str, words)], capture_output=True, text=True, timeout=START_S_MAX
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_answers_and_stops_with_exit_code_0(
    tmp_path: Path, muster: Muster, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = tmp_path / "m.db"
    with up("--db", log, "--speed", 100) as server:
        assert f"log        {log} (0 events)" in server.banner
        assert "8 nodes, 64 GPUs, 100 simulated seconds a second" in server.banner
        monkeypatch.setenv("MUSTER_URL", server.url)
        assert muster("submit", EXAMPLES / "native.yaml", "--wait").code == 0
        assert server.get("/docs")[0] == 200
        code, errors = server.stop(number)
    assert (code, "Traceback" in errors) == (0, False)
    assert "stopped" in errors
    assert "GET /docs" not in errors, "requests are logged with --verbose only"
    assert muster("log", "verify", log).code == 0


def test_an_open_event_stream_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with up("--db", tmp_path / "m.db") as server:
        watching = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "events", "--watch", "--url", server.url],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        assert watching.stdout.readline()
        assert server.stop()[0] == 0
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=START_S_MAX)
        assert watching.returncode == 130


def test_a_second_one_on_the_same_file_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with up("--db", log) as server:
        code, errors = refused("--db", f"sqlite:///{log}")
        assert code == 1
        assert f"another muster (process {server.process.pid}) already writes to {log}" in errors
        assert server.get("/readyz")[0] == 200
        assert server.stop()[0] == 0
    with up("--db", log) as server:
        assert server.stop()[0] == 0


def test_of_two_on_one_postgresql_the_first_stops_and_reports_why(database_url: str) -> None:
    with up("--db", database_url) as first, up("--db", database_url) as second:
        _, errors = first.process.communicate(timeout=START_S_MAX)
        assert first.process.returncode == 1
        assert "another control plane leads postgresql://127.0.0.1:" in errors
        assert "Traceback" not in errors
        assert second.get("/readyz")[0] == 200
        assert second.stop()[0] == 0


def test_after_a_kill_the_jobs_go_on(
    tmp_path: Path, muster: Muster, manifest: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "m.db"
    path = manifest("survivor", replicas=2, duration_s=150)
    with up("--db", log, "--speed", 50) as server:
        assert muster("submit", path, "--url", server.url).code == 0
        server.process.kill()
        server.process.wait(START_S_MAX)
    with up("--db", log, "--speed", 50) as server:
        assert muster("wait", "survivor", "--url", server.url).code == 0
        assert muster("get", "survivor", "--url", server.url, "-o", "json").json["restarts"] == []
        assert server.stop()[0] == 0
    assert muster("log", "verify", log).code == 0


def until_noted(db: Path) -> None:
    """Notes are written soon after the answer, not before it."""
    deadline = time.monotonic() + START_S_MAX
    with closing(sqlite3.connect(db)) as file:
        while not file.execute("SELECT count(*) FROM notes").fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("log", ["sqlite", "postgres"])
def test_after_a_restart_it_still_shows_how_wrong_forecasts_were(
    log: str, tmp_path: Path, request: pytest.FixtureRequest, muster: Muster,
    manifest: Callable[..., Path],
) -> None:  # fmt: skip
    db = tmp_path / "m.db" if log == "sqlite" else request.getfixturevalue("database_url")
    path = manifest("long", replicas=2, duration_s=3600)
    with up("--db", db, "--speed", 100) as server:
        assert muster("submit", path, "--url", server.url).code == 0
        assert json.loads(server.get("/v1/jobs/default/long/why")[1])["forecast"]
        assert json.loads(server.get("/v1/forecasts")[1])["made"] == 1
        # Notes on their way to a database are lost with a process that is killed at that moment.
        if log == "sqlite":
            until_noted(db)
            server.process.kill()
            server.process.wait(START_S_MAX)
        else:
            assert server.stop()[0] == 0
    with up("--db", db, "--speed", 1000) as server:
        assert json.loads(server.get("/v1/forecasts")[1])["made"] == 1
        assert muster("wait", "long", "--url", server.url).code == 0
        assert json.loads(server.get("/v1/forecasts")[1])["finishes"]["count"] == 1
        assert server.stop()[0] == 0


def test_a_fast_run_s_clock_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    ahead = [(r.position, r.at) for r in recorded()][-1][1]
    log = sqlite_log(tmp_path / "m.db", recorded())

    async def now() -> tuple[float, float]:
        wanted = Wanted(source=Source(Kind.SQLITE, str(log)), cluster=simulated_cluster(grid()))
        async with assembled(wanted) as parts:
            return parts.clock.now(), parts.events

    assert asyncio.run(now())[0] > ahead
    with sqlite3.connect(log) as connection:
        connection.execute("UPDATE events SET at = at + 1e9")
    connection.close()
    assert asyncio.run(now())[0] >= ahead + 1e9


def test_a_damaged_log_is_not_led(tmp_path: Path) -> None:
    log = sqlite_log(tmp_path / "m.db", recorded())
    with sqlite3.connect(log) as connection:
        connection.execute("UPDATE events SET payload = '{}' WHERE position = 17")
    connection.close()
    code, errors = refused("--db", log)
    assert code == 1
    assert "damaged at position 17" in errors
    assert "muster log export" in errors
    assert "Traceback" not in errors


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, errors = refused("--db", tmp_path / "m.db", "--port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in errors


def test_beyond_this_machine_a_token_is_made_and_needed(
    tmp_path: Path, muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with up("--db", tmp_path / "m.db", "--host", "0.0.0.0") as server:
        place = tmp_path / "data" / "muster" / "token"
        token = place.read_text().strip()
        assert f"token      in {place}" in server.banner
        assert place.stat().st_mode & 0o777 == 0o600
        url = server.url
        assert url.startswith("http://127.0.0.1:")
        assert server.get("/v1/jobs")[0] == 401
        assert server.get("/v1/jobs", Authorization=f"Bearer {token}")[0] == 200
        # On this machine the command line finds the token by itself.
        assert muster("list", "--url", url).code == 0
        monkeypatch.setenv("MUSTER_TOKEN", "wrong")
        ran = muster("list", "--url", url)
        assert ran.code == 1
        assert "did not take the token" in ran.err
        assert "MUSTER_TOKEN" in ran.err
        code, errors = server.stop()
    assert (code, token in server.banner + errors) == (0, False)


def test_a_token_file_is_enforced_on_loopback(
    tmp_path: Path, muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "secret"
    place.write_text("mus_of-this-test\n")
    with up("--db", "memory:", "--token-file", place) as server:
        assert f"token      in {place}" in server.banner
        assert server.get("/v1/jobs")[0] == 401
        assert server.get("/v1/jobs", Authorization="Bearer mus_of-this-test")[0] == 200
        ran = muster("list", "--url", server.url)
        assert (ran.code, "MUSTER_TOKEN_FILE" in ran.err) == (1, True)
        monkeypatch.setenv("MUSTER_TOKEN_FILE", str(place))
        assert muster("list", "--url", server.url).code == 0


def test_a_named_token_file_must_be_there_and_hold_a_token(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for place, message in ((tmp_path / "none", "there is no token file"), (empty, "is empty")):
        code, errors = refused("--db", "memory:", "--token-file", place)
        assert code == 2
        assert message in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "kubernetes"], "Kubernetes"),
        (["--cluster", "mars"], "is not a cluster"),
        (["--cluster", "sim:none.yaml"], "cannot be read"),
        (["--speed", "0"], "--speed"),
        (["--db", "mysql://x"], "an unknown type of log"),
    ],
)
def test_wrong_usage_exits_with_2(muster: Muster, words: list[str], message: str) -> None:
    ran = muster("up", "--db", "memory:", *words)
    assert ran.code == 2
    assert message in ran.err


def test_a_cluster_file_s_mistake_is_named(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    for text, message in (
        ("racks:\n  - name: r\n    nodes: many\n", "racks[0].nodes: must be a whole number"),
        ("racks: [\n", "line 2"),
    ):
        path.write_text(text)
        ran = muster("up", "--db", "memory:", "--cluster", f"sim:{path}")
        assert ran.code == 2
        assert message in ran.err


def test_a_folder_that_cannot_be_written_is_named(muster: Muster) -> None:
    ran = muster("up", "--db", "/proc/muster.db")
    assert ran.code == 1
    assert "/proc/muster.db" in ran.err
