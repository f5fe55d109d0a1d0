"""Logs that outlive their pods, within a size."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from adapters.kubernetes.log_archive import LogArchive, Run
from adapters.kubernetes.log_reading import LogReading, speakers
from adapters.kubernetes.marks import Mark


def noise(n: int) -> list[str]:
    """Lines that do not compress well."""
    return [f"{(n * 7919 + i * 104729) ** 5:x}" for i in range(50)]


async def test_what_was_kept_is_read_back_the_last_lines_first_to_stay(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 2**20)
    await archive.keep(Run("j", 1, 0, 0), ["a", "b", "ü"])
    await archive.keep(Run("j", 1, 0, 1), ["c"])
    await archive.keep(Run("j", 2, 0, 0), ["other"])
    assert await archive.lines("j", 1, 0, 10) == ["a", "b", "ü", "c"]
    assert await archive.lines("j", 1, 0, 2) == ["ü", "c"]
    assert await archive.lines("j", 1, 1, 10) == []
    archive.close()


async def test_a_run_is_kept_once_with_what_came_last(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 2**20)
    await archive.keep(Run("j", 1, 0, 0), ["early"])
    await archive.keep(Run("j", 1, 0, 0), ["early", "late"])
    assert await archive.lines("j", 1, 0, 10) == ["early", "late"]
    archive.close()


async def test_it_stays_within_its_size_and_the_oldest_go_first(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 20_000)
    for n in range(40):
        await archive.keep(Run("j", n, 0, 0), noise(n))
        assert archive.size_bytes <= 20_000
    there = [n for n in range(40) if await archive.lines("j", n, 0, 1)]
    assert there == list(range(there[0], 40))
    assert 2 <= len(there) < 40
    archive.close()
    again = LogArchive(tmp_path / "logs", 20_000)
    assert again.size_bytes > 0
    assert await again.lines("j", 39, 0, 100) == noise(39)
    again.close()


async def test_what_is_larger_than_all_of_it_is_not_kept(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 10)
    await archive.keep(Run("j", 1, 0, 0), noise(1))
    assert await archive.lines("j", 1, 0, 10) == []
    archive.close()


async def test_a_job_that_is_deleted_is_forgotten(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 2**20)
    await archive.keep(Run("a", 1, 0, 0), ["x"])
    await archive.keep(Run("b", 1, 0, 0), ["y"])
    await archive.forget("a")
    assert await archive.lines("a", 1, 0, 9) == []
    assert await archive.lines("b", 1, 0, 9) == ["y"]
    archive.close()


async def test_every_container_has_lines_of_its_own(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 2**20)
    await archive.keep(Run("j", 1, 0, 0, 0, "main"), ["of main"])
    await archive.keep(Run("j", 1, 0, 0, 1, "sidecar"), ["of sidecar"])
    await archive.keep(Run("j", 1, 0, 0, -1, "prepare"), ["of prepare"])
    await archive.keep(Run("j", 1, 0, 1, 1, "sidecar"), ["and again"])
    assert await archive.containers("j", 1, 0) == ["prepare", "main", "sidecar"]
    assert await archive.lines("j", 1, 0, 9) == ["of main"]
    assert await archive.lines("j", 1, 0, 9, "main") == ["of main"]
    assert await archive.lines("j", 1, 0, 9, "sidecar") == ["of sidecar", "and again"]
    assert await archive.lines("j", 1, 0, 9, "prepare") == ["of prepare"]
    assert await archive.lines("j", 1, 0, 9, "other") == []
    archive.close()


async def test_a_file_of_an_older_form_is_begun_anew(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "logs")
    old.execute("CREATE TABLE logs (number INTEGER, job TEXT, bytes INTEGER)")
    old.execute("INSERT INTO logs VALUES (1, 'j', 10)")
    old.commit()
    old.close()
    archive = LogArchive(tmp_path / "logs", 2**20)
    assert archive.size_bytes == 0
    await archive.keep(Run("j", 1, 0, 0), ["new"])
    archive.close()
    again = LogArchive(tmp_path / "logs", 2**20)
    assert await again.lines("j", 1, 0, 9) == ["new"]
    again.close()


def test_what_only_waits_is_not_worth_keeping_unless_it_failed() -> None:
    def ended(name: str, code: int) -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": code}}}

    spec = {"containers": [{"name": "sidecar"}, {"name": "main"}]}
    well = [ended("prepare", 0), ended("init-main", 0)]
    pod = {"spec": spec, "status": {"initContainerStatuses": well}}
    assert speakers(pod) == [(0, "sidecar"), (1, "main"), (-1, "prepare")]
    badly = [ended("prepare", 0), ended("init-main", 1)]
    pod = {"spec": spec, "status": {"initContainerStatuses": badly}}
    assert (-2, "init-main") in speakers(pod)


class Slow:
    """An API server that takes its time to tell what a container wrote."""

    async def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> bytes:
        await asyncio.sleep(0.05)
        return f"of {query['container']}".encode()


async def test_nobody_deletes_a_pod_while_its_lines_are_being_read(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path / "logs", 2**20)
    reading = LogReading(Slow(), archive)  # type: ignore[arg-type]
    labels = Mark("j", 1, 0, 0).labels()
    over = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in ("main", "beside")]
    pod = {
        "metadata": {"name": "j-0", "namespace": "default", "uid": "u", "labels": labels},
        "spec": {"containers": [{"name": "main"}, {"name": "beside"}]},
        "status": {"phase": "Succeeded", "containerStatuses": over},
    }
    reading.keep_soon(pod)
    await reading.keep_now([pod])
    assert await archive.lines("j", 1, 0, 9, "beside") == ["of beside"]
    await reading.close()
    archive.close()
