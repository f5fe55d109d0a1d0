"""Cluster adapters: chosen by the scheme of --cluster, and added through the registry."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from cli.errors import CliError
from cli.server import clusters, simulated
from cli.server.cluster_adapter import (
    ClusterAdapter,
    ClusterContext,
    ClusterSetup,
    NoFlags,
    OpenCluster,
)
from controlplane.lifecycle.effects import Effect, LaunchGang, StopGang, Survey
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Exit
from tests.cli.conftest import Muster

START_S_MAX = 30.0


class Prompt:
    """A cluster whose ranks start and end at once."""

    def __init__(self, nodes: int) -> None:
        self._nodes = tuple(NodeInfo(name=f"toy-{i}", gpus=8) for i in range(nodes))
        self._report: Callable[[c.Report], None] = lambda report: None

    async def connect(self, report: Callable[[c.Report], None]) -> None:
        self._report = report

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Survey():
                    self._report(c.ReportCluster(up=self._nodes))
                case LaunchGang():
                    ranks = tuple(range(effect.job.spec.size))
                    exits = tuple(Exit(rank, 0) for rank in ranks)
                    about = partial(c.ReportRanks, job=effect.job_id, attempt=effect.attempt)
                    self._report(about(started=ranks))
                    self._report(about(exited=exits))
                case StopGang():
                    ranks = tuple(range(effect.job.spec.size))
                    self._report(
                        c.ReportRanks(job=effect.job_id, attempt=effect.attempt, gone=ranks)
                    )

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return [f"{job.name} {rank}"]


def toy(opened: list[str]) -> ClusterAdapter:
    @asynccontextmanager
    async def open_(nodes: int, context: ClusterContext) -> AsyncIterator[OpenCluster]:
        opened.append("open")
        yield OpenCluster(Prompt(nodes))
        opened.append("closed")

    def configure(rest: str, flags: NoFlags) -> ClusterSetup:
        if not rest.isdigit():
            raise CliError(f"toy:{rest} is not toy:NODES")
        return ClusterSetup(description=f"{rest} toys", open=partial(open_, int(rest)))

    return ClusterAdapter(scheme="toy", form="toy:NODES", configure=configure)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    opened: list[str] = []
    clusters.register(toy(opened))
    yield opened
    del clusters.CLUSTERS["toy"]


@contextmanager
def meanwhile(act: Callable[[str], None]) -> Iterator[str]:
    """Yields a port, and acts on the server there once it is ready; then the server is stopped."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    failures: list[BaseException] = []

    def visit() -> None:
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: is_ready(url))
            act(url)
        except BaseException as error:  # noqa: BLE001 - it fails the test below
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    visitor = threading.Thread(target=visit)
    visitor.start()
    yield str(port)
    visitor.join(START_S_MAX)
    assert not failures, failures


def get(url: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, body, headers), timeout=START_S_MAX) as answer:
        return json.loads(answer.read() or b"null")


def until(condition: Callable[[], bool]) -> None:
    last = time.monotonic() + START_S_MAX
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.02)


def is_ready(url: str) -> bool:
    try:
        return get(f"{url}/readyz") is not None
    except OSError:
        return False


def test_a_job_runs_on_an_adapter_of_one_s_own(
    muster: Muster, manifest: Callable[..., Path], opened: list[str]
) -> None:
    file, lines = manifest("pair", replicas=2, duration_s=3600), list[str]()

    def visit(url: str) -> None:
        assert opened == ["open"]
        get(f"{url}/v1/jobs", file.read_bytes())
        until(lambda: get(f"{url}/v1/jobs/default/pair")["job"]["phase"] == "Succeeded")
        lines.extend(get(f"{url}/v1/jobs/default/pair/logs?rank=1")["lines"])

    with meanwhile(visit) as port:
        ran = muster("up", "--cluster", "toy:3", "--db", "memory:", "--port", port)
    assert ran.code == 0, ran.err
    assert "cluster    3 toys" in ran.out
    assert lines == ["pair 1"]
    assert opened == ["open", "closed"]


def test_an_unknown_scheme_is_refused_with_those_that_are_known(
    muster: Muster, opened: list[str]
) -> None:
    ran = muster("up", "--cluster", "mars:1", "--db", "memory:")
    assert ran.code == 2
    assert "there is no adapter 'mars'" in ran.err
    assert "sim[:FILE], kubernetes[:CONTEXT], toy:NODES" in ran.err


def test_what_an_adapter_cannot_read_is_refused_before_anything_starts(
    muster: Muster, opened: list[str]
) -> None:
    ran = muster("up", "--cluster", "toy:many", "--db", "memory:")
    assert (ran.code, opened) == (1, [])
    assert "toy:many is not toy:NODES" in ran.err


def test_two_adapters_cannot_have_one_scheme(opened: list[str]) -> None:
    with pytest.raises(clusters.SchemeTaken, match="toy"):
        clusters.register(toy([]))
    clusters.register(clusters.CLUSTERS["toy"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--operator"], "--operator needs --cluster kubernetes"),
        (["--cluster", "kubernetes", "--seed", "1"], "--seed needs --cluster sim"),
        (["--cluster", "toy:1", "--leave-queued", "kueue"], "--leave-queued needs"),
        (["--cluster", "kubernetes:a", "--context", "b"], "two contexts"),
        (["--kubeconfig", "x"], "--kubeconfig needs --cluster kubernetes"),
    ],
)
def test_options_of_another_adapter_are_refused(
    muster: Muster, opened: list[str], words: list[str], message: str
) -> None:
    ran = muster("up", "--db", "memory:", *words)
    assert ran.code == 2
    assert message in ran.err


def test_the_short_forms_are_the_default_model_and_the_current_context() -> None:
    assert clusters.configure("sim", {}).description == clusters.configure("sim:", {}).description
    setup = clusters.configure("sim", {"sim": simulated.SimulatedFlags(speed=5.0)})
    assert setup.speed == 5.0
    assert "5 simulated seconds a second" in setup.description
    assert clusters.configure("kubernetes", {}).description.startswith("Kubernetes")
