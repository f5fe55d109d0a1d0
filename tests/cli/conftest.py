"""A real server in a thread, and the command line run against it in this process."""

import asyncio
import io
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cli.log.sources import Kind, Source
from cli.main import run
from cli.server.assembly import Wanted, assembled, running
from cli.server.simulated import simulated_cluster
from simulator.network.topology import Delays, grid

EXAMPLES = Path(__file__).parents[2] / "examples"
# Jobs of a minute end in a third of a second.
SPEED = 200.0


class Ran(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


Muster = Callable[..., Ran]


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the settings or the data of the person who runs it."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "DB", "NAMESPACE", "DEBUG", "PROMETHEUS"):
        monkeypatch.delenv(f"MUSTER_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("MUSTER_URL", "http://127.0.0.1:1")


@pytest.fixture
def muster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Muster:
    """Runs one command line, given as words."""

    def call(*words: object, stdin: str | None = None) -> Ran:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = run([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def shared_server() -> Iterator[str]:
    with server_thread() as url:
        yield url


@pytest.fixture
def server(shared_server: str, monkeypatch: pytest.MonkeyPatch, muster: Muster) -> Iterator[str]:
    """The shared server, without jobs before and after."""
    monkeypatch.setenv("MUSTER_URL", shared_server)
    yield shared_server
    # Those that are being deleted are listed until their ranks are gone.
    while names := muster("list", "-A", "-o", "name").out.split():
        muster("delete", *names)


class server_thread:  # noqa: N801 - used like a function
    """A control plane in memory, on a port of its own, in a thread of its own."""

    def __init__(self, speed: float = SPEED, **wanted: Any) -> None:
        cluster = simulated_cluster(grid(delays=Delays(start_s=5.0, stop_s=2.0)), speed)
        usual = {"source": Source(Kind.MEMORY, ""), "cluster": cluster}
        self._wanted = Wanted(**usual | wanted)
        self._thread = threading.Thread(target=self._run)
        self._ready = threading.Event()
        self._url = ""

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(10), "the server did not start"
        return self._url

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with assembled(self._wanted) as parts, running(parts, "127.0.0.1", 0) as (url, _):
            self._url = url
            self._ready.set()
            await self._stop.wait()


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., Path]:
    """Writes a manifest in the native form."""

    def write(
        name: str,
        *,
        replicas: int = 1,
        gpus: int = 1,
        namespace: str = "default",
        **workload: object,
    ) -> Path:
        document = {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "roles": [{"name": "Worker", "replicas": replicas, "gpus": gpus}],
                "restart": {"limit": 0},
                "workload": {"duration_s": 20, **workload},
            },
        }
        path = tmp_path / f"{namespace}-{name}.yaml"
        path.write_bytes(msgspec.json.encode(document))
        return path

    return write
