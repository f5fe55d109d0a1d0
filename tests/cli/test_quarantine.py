"""A planted bug in the real `muster up`: the job that stops it is quarantined, and the others go on.

The server runs in a process of its own, with a bug for one job in its scheduler; it is killed on the way, and
started again, and what it knows of its deaths is in the log.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.test_serve import Server

PATIENCE_S = 60.0
# Everything about the job `odd` is a bug. ONCE ends the process at the first death, as a kill would.
PLANTED = """
import os, sys
from controlplane.scheduling import scheduling_pass
from cli.server.supervisor import Supervisor
from cli.main import main

look_at = scheduling_pass.Pass._try_to_start
def planted(self, gang):
    assert self.snapshot.job(gang.id).name != "odd", "planted"
    return look_at(self, gang)
scheduling_pass.Pass._try_to_start = planted

if "once" in sys.argv[1]:
    def judge(self, error):
        os.kill(os.getpid(), 9)
    Supervisor._judge = judge

sys.argv[1:2] = []
main()
"""
MANIFEST = {
    "apiVersion": "muster.dev/v1",
    "kind": "Job",
    "spec": {
        "roles": [{"name": "worker", "replicas": 1, "gpus": 1}],
        "workload": {"duration_s": 5},
    },
}


@contextmanager
def planted(log: Path, how: str) -> Iterator["subprocess.Popen[str]"]:
    words = [how, "up", "--port", "0", "--db", str(log), "--speed", "100"]
    process = subprocess.Popen(
        [sys.executable, "-c", PLANTED, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def submit(server: Server, name: str) -> int:
    import urllib.error
    import urllib.request

    body = json.dumps({**MANIFEST, "metadata": {"name": name}}).encode()
    request = urllib.request.Request(
        f"{server.url}/v1/jobs",
        body,
        {"Content-Type": "application/json", "Idempotency-Key": f"key-{name}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except (urllib.error.HTTPError, OSError) as error:
        return int(getattr(error, "code", 0))


def insist(server: Server, name: str) -> None:
    until(lambda: submit(server, name) in (200, 201))


def until(done) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def job(server: Server, name: str) -> dict:  # type: ignore[type-arg]
    status, text = server.get(f"/v1/jobs/default/{name}")
    return json.loads(text).get("job", {}) if status == 200 else {}


def check_quarantined(server: Server) -> None:
    until(lambda: job(server, "odd").get("reason") == "quarantined")
    insist(server, "after")
    for name in ("before", "after"):
        until(lambda name=name: job(server, name).get("phase") == "Succeeded")  # type: ignore[misc]
    assert json.loads(server.get("/readyz")[1])["quarantined"] == ["default/odd"]
    why = json.loads(server.get("/v1/jobs/default/odd/why")[1])
    assert "schedule: AssertionError: planted" in why["summary"]


def verified(log: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "log", "verify", str(log)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_job_that_stops_the_engine_twice_is_quarantined_by_the_server(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with planted(log, "always") as process:
        server = Server(process)
        insist(server, "before")
        submit(server, "odd")
        check_quarantined(server)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert "is quarantined; only deleting it is left" in errors
    assert "decisions good" in " ".join(verified(log).split())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_deaths_are_remembered_when_the_process_dies_with_its_engine(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with planted(log, "once") as process:
        server = Server(process)
        insist(server, "before")
        submit(server, "odd")
        process.wait(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGKILL
    with planted(log, "once") as process:
        process.wait(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGKILL
    with planted(log, "once") as process:
        check_quarantined(Server(process))


@pytest.mark.timeout(300)
def test_a_job_can_be_quarantined_in_a_log_that_no_engine_leads(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with planted(log, "once") as process:
        server = Server(process)
        insist(server, "before")
        submit(server, "odd")
        process.wait(timeout=PATIENCE_S)

    def quarantine(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "cli.main", "log", "quarantine", *words, str(log)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert quarantine("missing").returncode == 102
    done = quarantine("odd", "--reason", "it stops the engine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "quarantined already" in quarantine("odd").stdout
    assert "decisions good" in " ".join(verified(log).split())
    with planted(log, "once") as process:
        server = Server(process)
        until(lambda: job(server, "before").get("phase") == "Succeeded")
        odd = job(server, "odd")
        assert odd["reason"] == "quarantined"
        assert odd["message"].endswith("it stops the engine")
        refused = quarantine("before")
        assert refused.returncode == 1
        assert "already writes" in refused.stderr


@pytest.mark.timeout(300)
def test_a_job_can_be_quarantined_in_a_log_in_postgresql(database_url: str) -> None:
    words = [sys.executable, "-m", "cli.main"]

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*words, *more], capture_output=True, text=True, check=False)

    with up_on(database_url) as server:
        for name in ("odd", "good"):
            insist(server, name)
        until(lambda: job(server, "good").get("phase") == "Succeeded")
    assert run("log", "quarantine", "missing", database_url).returncode == 102
    done = run("log", "quarantine", "odd", "--reason", "it stops the engine", database_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "quarantined already" in run("log", "quarantine", "odd", database_url).stdout
    assert "decisions good" in " ".join(run("log", "verify", database_url).stdout.split())
    with up_on(database_url) as server:
        assert json.loads(server.get("/readyz")[1])["quarantined"] == ["default/odd"]
        assert "muster_jobs_quarantined 1.0" in server.get("/metrics")[1]
        assert "it stops the engine" in server.get("/v1/jobs/default/odd/why")[1]
        insist(server, "after")
        until(lambda: job(server, "after").get("phase") == "Succeeded")


@contextmanager
def up_on(database_url: str) -> Iterator[Server]:
    """A server on a log in PostgreSQL, without any bug; stopped at the end."""
    words = ["up", "--port", "0", "--db", database_url, "--speed", "100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Server(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
