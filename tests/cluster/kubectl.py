"""kubectl, as a person types it."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kube import TestBed, until

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "deploy" / "crds"


class Failed(Exception):
    """kubectl refused; the text is what it printed."""


class Kubectl:
    def __init__(self, bed: TestBed) -> None:
        built = bed.place.programs / "kubectl" if bed.place is not None else None
        program = str(built) if built is not None and built.exists() else shutil.which("kubectl")
        if program is None:
            pytest.skip("no kubectl on the PATH; `make cluster-up` builds one and prints its path")
        self._program = program
        self._env = {**os.environ, "KUBECONFIG": str(bed.kubeconfig)}

    async def __call__(self, *words: str, given: str | None = None) -> str:
        process = await self.start(*words, given=given is not None)
        data = None if given is None else given.encode()
        out, err = await asyncio.wait_for(process.communicate(data), 60)
        if process.returncode:
            raise Failed(err.decode())
        return out.decode()

    async def start(self, *words: str, given: bool = False) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._program,
            *words,
            env=self._env,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def apply(self, manifest: dict[str, Any]) -> str:
        return await self("apply", "-f", "-", given=yaml.safe_dump(manifest))

    async def install_definitions(self) -> None:
        await self("apply", "-k", str(CRDS))
        names = [f"crd/{file.stem}" for file in _files()]
        await self("wait", "--for=condition=Established", "--timeout=30s", *names)

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = json.loads(await self("get", kind, name, "-o", "json"))
        except Failed as failed:
            if "NotFound" in str(failed):
                return None
            raise
        return document

    async def state(self, kind: str, name: str) -> str:
        """The value in the column of that name."""
        document = await self.get(kind, name)
        status = {} if document is None else document.get("status") or {}
        return str((status.get("muster") or {}).get("state", ""))

    async def until_state(self, kind: str, name: str, *states: str, seconds: float = 90) -> None:
        async def reached() -> bool:
            return await self.state(kind, name) in states

        await until(reached, seconds, f"{kind} {name} to be {' or '.join(states)}", every_s=0.5)

    async def until_gone(self, kind: str, name: str, seconds: float = 60) -> None:
        async def gone() -> bool:
            return await self.get(kind, name) is None

        await until(gone, seconds, f"{kind} {name} to go", every_s=0.5)

    async def clear(self) -> None:
        """Deletes every job of the namespace."""
        kinds = ",".join(file.stem for file in _files())
        await self("delete", kinds, "--all", "--ignore-not-found", "--wait=true")


def _files() -> list[Path]:
    """One for each definition, by its name."""
    return sorted(CRDS.glob("*.*.yaml"))
