"""`muster up` on a simulated cluster, killed and started again: the log has all that it needs."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.server import heartbeat
from tests.cli.conftest import Muster
from tests.cli.test_serve import START_S_MAX, Server, up

CLUSTER = """
racks:
  - {name: a, nodes: 1, gpus: 4, gpu_type: P100, link: pcie3, net: 25GbE}
  - {name: cloud, nodes: 3, gpus: 4, gpu_type: P100, link: pcie3, net: 25GbE}
pools:
  - {rack: cloud, least: 0, most: 3, delay_s: 100, idle_s: 600}
"""
JOB = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: big}
spec:
  roles: [{name: worker, replicas: 3, gpus: 4}]
  workload: {training: {model: resnet50, steps: 10000, checkpoint_s: 300}}
"""
PATIENCE_S = 60.0


def until(asked: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not wanted(answer := asked()):
        assert time.monotonic() < end, answer
        time.sleep(0.1)
    return answer


def job(server: Server) -> dict[str, Any]:
    return json.loads(server.get("/v1/jobs/default/big")[1])


def ready(server: Server) -> set[str]:
    nodes = json.loads(server.get("/v1/nodes")[1])
    return {node["name"] for node in nodes["items"] if node["ready"]}


def kill(server: Server) -> None:
    server.process.kill()
    server.process.wait(START_S_MAX)


def test_rented_nodes_and_the_gang_on_them_outlive_a_kill(tmp_path: Path, muster: Muster) -> None:
    log, cluster, path = tmp_path / "m.db", tmp_path / "c.yaml", tmp_path / "j.yaml"
    cluster.write_text(CLUSTER)
    path.write_text(JOB)
    words = ("--db", log, "--cluster", f"sim:{cluster}", "--speed", 200)
    with up(*words) as server:
        assert muster("submit", path, "--url", server.url).code == 0
        until(lambda: job(server), lambda job: job["job"]["phase"] == "Running")
        rented = ready(server) - {"a-0"}
        assert len(rented) >= 2, rented
        kill(server)
    with up(*words) as server:
        assert muster("wait", "big", "--url", server.url).code == 0
        assert job(server)["restarts"] == []
        # Nothing waits any more, so the rented nodes go back.
        until(lambda: ready(server), lambda nodes: nodes == {"a-0"})
        assert server.stop()[0] == 0
    assert muster("log", "verify", log).code == 0
    with sqlite3.connect(log) as connection:
        kinds = [kind for (kind,) in connection.execute("SELECT type FROM events ORDER BY 1")]
        query = "SELECT type, stream FROM events ORDER BY position"
        rows = connection.execute(query).fetchall()
    connection.close()
    assert (kinds.count("ClusterModelled"), kinds.count("PoolNodesRequested")) == (1, 1)
    assert kinds.count("EngineStarted") == 2
    types = [kind for kind, _ in rows]
    placed, ended = types.index("GangPlaced"), types.index("JobSucceeded")
    lost = [stream for kind, stream in rows[placed:ended] if kind == "NodeLost"]
    # At most the one that the gang did not need went back meanwhile.
    assert (types.count("GangPlaced"), len(lost)) == (1, len(lost[:1]))


def test_a_training_that_cannot_be_is_refused_at_the_door(tmp_path: Path, muster: Muster) -> None:
    path = tmp_path / "j.yaml"
    path.write_text(JOB.replace("resnet50", "gpt_175b"))
    with up("--db", tmp_path / "m.db") as server:
        assert muster("submit", path, "--url", server.url).code != 0
        assert server.stop()[0] == 0


def test_time_that_passed_without_an_event_is_not_turned_back(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with up("--db", log, "--speed", 100_000) as server:
        time.sleep(1.0)
        assert server.stop()[0] == 0
    with sqlite3.connect(log) as connection:
        (stopped,) = connection.execute("SELECT max(at) FROM events").fetchone()
    connection.close()
    assert stopped > time.time() + 86_400.0
    with up("--db", log) as server:
        assert server.stop()[0] == 0
    with sqlite3.connect(log) as connection:
        query = "SELECT at FROM events WHERE type = 'EngineStarted' ORDER BY position"
        starts = [at for (at,) in connection.execute(query)]
    connection.close()
    assert starts[1] >= stopped


def test_after_a_kill_a_heartbeat_is_all_that_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    with up("--db", log, "--speed", 1_000) as server:
        time.sleep(heartbeat.EVERY_S + 1.0)
        kill(server)
    with sqlite3.connect(log) as connection:
        (last,) = connection.execute("SELECT max(at) FROM events").fetchone()
        (first,) = connection.execute("SELECT min(at) FROM events").fetchone()
        (beats,) = connection.execute(
            "SELECT count(*) FROM events WHERE type = 'TimePassed'"
        ).fetchone()
    connection.close()
    assert last - first >= 0.9 * heartbeat.EVERY_S * 1_000
    assert 1 <= beats <= 3
