"""A control plane as people run it: `muster up` in a process, spoken to over HTTP."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp

from deploy.testcluster.images import BUSYBOX
from tests.cluster.kube import until

START_S_MAX = 60
FINAL = ("Succeeded", "Failed", "Cancelled")


class Refusal(Exception):
    """Muster refused; the text is its problem document."""


class Muster:
    """An asynchronous context; `kill` and `start` work inside it, on the same log.

    With `stays`, the process outlives the context and serves the next one; `end` stops it.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        folder: Path,
        *options: str,
        cluster: str = "kubernetes",
        stays: bool = False,
    ) -> None:
        self._kubeconfig, self._folder, self._stays = kubeconfig, folder, stays
        waiting = ["--waiting-image", BUSYBOX] if cluster == "kubernetes" else []
        self._options = ["--cluster", cluster, *waiting, *options]
        self.log = folder / "muster.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> "Muster":
        self._session = aiohttp.ClientSession()
        if self._process is None or self._process.poll() is not None:
            await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        if not self._stays:
            self.end()

    async def start(self) -> None:
        began = self.log.stat().st_size if self.log.exists() else 0
        self._run()
        self.url = await until(
            lambda: self._address(began), START_S_MAX, f"`muster up`: {self.log}"
        )
        await until(self._is_ready, START_S_MAX, "the control plane to lead and to see nodes")

    def _run(self) -> None:
        words = ["up", "--db", str(self._folder / "muster.db"), "--port", "0", *self._options]
        env = {**os.environ, "XDG_DATA_HOME": str(self._folder / "data"), "PYTHONUNBUFFERED": "1"}
        if self._kubeconfig is not None:
            env["KUBECONFIG"] = str(self._kubeconfig)
        program = [sys.executable, "-m", "cli.main", *words]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(program, env=env, stdout=log, stderr=log)

    async def _address(self, began: int) -> str:
        output = self.log.read_text()[began:]
        assert self._process is not None
        assert self._process.poll() is None, output
        addresses = [line.split()[1] for line in output.splitlines() if line.startswith("  API")]
        return addresses[0] if addresses else ""

    async def _is_ready(self) -> bool:
        async with self._session.get(f"{self.url}/readyz") as answer:
            leads = answer.status == 200
        return leads and bool((await self.get("/v1/nodes"))["items"])

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def forget_all(self) -> None:
        """Deletes every job, and waits until nothing of them is left."""
        for item in (await self.get("/v1/jobs", limit="1000"))["items"]:
            if not item["deleting"]:
                await self.delete(item["name"])
        await until(self._is_empty, 60, "the jobs to be forgotten")

    async def _is_empty(self) -> bool:
        return not (await self.get("/v1/jobs"))["items"]

    # ---------------------------------------------------------------- requests

    async def get(self, path: str, **query: str) -> Any:
        async with self._session.get(f"{self.url}{path}", params=query) as answer:
            if answer.status >= 400:
                raise Refusal(await answer.text())
            return await answer.json()

    async def post(self, path: str, body: Any = None) -> Any:
        async with self._session.post(f"{self.url}{path}", json=body) as answer:
            if answer.status >= 400:
                raise Refusal(await answer.text())
            return await answer.json()

    async def delete(self, name: str) -> None:
        async with self._session.delete(f"{self.url}{_path(name)}") as answer:
            if answer.status >= 400:
                raise Refusal(await answer.text())

    async def submit(self, manifest: dict[str, Any]) -> str:
        await self.post("/v1/jobs", manifest)
        return str(manifest["metadata"]["name"])

    async def job(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = await self.get(_path(name))
        return answer

    async def phase(self, name: str) -> str:
        return str((await self.job(name))["job"]["phase"])

    async def why(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = await self.get(f"{_path(name)}/why")
        return answer

    async def events(self, name: str) -> list[dict[str, Any]]:
        answer = await self.get(f"{_path(name)}/events", limit="1000")
        return list(answer["items"])

    async def head(self) -> int:
        """The last position in the log."""
        return int((await self.get("/v1/events", after="0", limit="1"))["head"])

    async def story(self, name: str) -> list[str]:
        return job_level(await self.events(name))

    async def logs(self, name: str, rank: int) -> list[str]:
        answer = await self.get(f"{_path(name)}/logs", rank=str(rank))
        return list(answer["lines"])

    # ---------------------------------------------------------------- waiting

    async def until_phase(self, name: str, *phases: str, seconds: float = 90) -> dict[str, Any]:
        """Waits for one of these phases; an end that is none of them fails at once."""

        async def reached() -> dict[str, Any] | None:
            job = await self.job(name)
            now = job["job"]["phase"]
            assert now in phases or now not in FINAL, f"{name} is {now}: {job['job']['message']}"
            return job if now in phases else None

        answer: dict[str, Any] = await until(
            reached, seconds, f"{name} to be {' or '.join(phases)}"
        )
        return answer

    async def until_event(
        self, name: str, kind: str, seconds: float = 60, after: int = 0
    ) -> dict[str, Any]:
        async def reached() -> dict[str, Any] | None:
            events = await self.events(name)
            return next((e for e in events if e["type"] == kind and e["position"] > after), None)

        event: dict[str, Any] = await until(reached, seconds, f"{kind} of {name}")
        return event


def job_level(events: list[dict[str, Any]]) -> list[str]:
    """What happened to the job as a whole; which ranks were seen first is left to chance."""
    return [event["type"] for event in events if not event["type"].startswith("Rank")]


def _path(name: str) -> str:
    return f"/v1/jobs/default/{name}"
