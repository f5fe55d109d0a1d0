"""Logs that outlive their pods, within a size."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from adapters.kubernetes.log_archive import FileLogArchive, Run
from adapters.kubernetes.log_reading import LogReading, speakers
from adapters.kubernetes.marks import Mark
from adapters.kubernetes.postgres_log_archive import PostgresLogArchive
from controlplane.errors import LogUnavailable

Opened = Callable[[int], FileLogArchive | PostgresLogArchive]


@pytest.fixture(params=["file", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the same archive once more, with a size."""
    if request.param == "file":
        return lambda bytes_max: FileLogArchive(tmp_path / "logs", bytes_max)
    url: str = request.getfixturevalue("database_url")
    return lambda bytes_max: PostgresLogArchive(url, bytes_max, schema="public")


def noise(n: int) -> list[str]:
    """Lines that do not compress well."""
    return [f"{(n * 7919 + i * 104729) ** 5:x}" for i in range(50)]


async def test_what_was_kept_is_read_back_the_last_lines_first_to_stay(opened: Opened) -> None:
    archive = opened(2**20)
    await archive.keep(Run("j", 1, 0, 0), ["a", "b", "ü"])
    await archive.keep(Run("j", 1, 0, 1), ["c"])
    await archive.keep(Run("j", 2, 0, 0), ["other"])
    assert await archive.lines("j", 1, 0, 10) == ["a", "b", "ü", "c"]
    assert await archive.lines("j", 1, 0, 2) == ["ü", "c"]
    assert await archive.lines("j", 1, 1, 10) == []
    await archive.close()


async def test_a_run_is_kept_once_with_what_came_last(opened: Opened) -> None:
    archive = opened(2**20)
    await archive.keep(Run("j", 1, 0, 0), ["early"])
    await archive.keep(Run("j", 1, 0, 0), ["early", "late"])
    assert await archive.lines("j", 1, 0, 10) == ["early", "late"]
    await archive.close()


async def test_it_stays_within_its_size_and_the_oldest_go_first(opened: Opened) -> None:
    archive = opened(20_000)
    for n in range(40):
        await archive.keep(Run("j", n, 0, 0), noise(n))
        assert archive.size_bytes <= 20_000
    there = [n for n in range(40) if await archive.lines("j", n, 0, 1)]
    assert there == list(range(there[0], 40))
    assert 2 <= len(there) < 40
    await archive.close()
    again = opened(20_000)
    assert await again.lines("j", 39, 0, 100) == noise(39)
    assert again.size_bytes > 0
    await again.close()


async def test_what_is_larger_than_all_of_it_is_not_kept(opened: Opened) -> None:
    archive = opened(10)
    await archive.keep(Run("j", 1, 0, 0), noise(1))
    assert await archive.lines("j", 1, 0, 10) == []
    await archive.close()


async def test_a_job_that_is_deleted_is_forgotten(opened: Opened) -> None:
    archive = opened(2**20)
    await archive.keep(Run("a", 1, 0, 0), ["x"])
    await archive.keep(Run("b", 1, 0, 0), ["y"])
    await archive.forget("a")
    assert await archive.lines("a", 1, 0, 9) == []
    assert await archive.lines("b", 1, 0, 9) == ["y"]
    await archive.close()


async def test_every_container_has_lines_of_its_own(opened: Opened) -> None:
    archive = opened(2**20)
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
    await archive.close()


async def test_what_one_replica_keeps_another_finds(database_url: str) -> None:
    one = PostgresLogArchive(database_url, 20_000, schema="public")
    other = PostgresLogArchive(database_url, 20_000, schema="public")
    await asyncio.gather(
        one.keep(Run("j", 1, 0, 0), ["of one"]), other.keep(Run("j", 2, 0, 0), ["of other"])
    )
    assert await other.lines("j", 1, 0, 9) == ["of one"]
    assert await one.lines("j", 2, 0, 9) == ["of other"]
    await one.close()
    await other.close()


async def test_a_database_that_does_not_answer_is_told_and_asked_again(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = PostgresLogArchive("postgresql://postgres@127.0.0.1:1/none", 20_000)
    await nowhere.keep(Run("j", 1, 0, 0), ["lost"])
    assert "what rank 0 of job j wrote is not kept" in caplog.text
    with pytest.raises(LogUnavailable, match="cannot be had"):
        await nowhere.lines("j", 1, 0, 9)
    archive = PostgresLogArchive(database_url, 20_000, schema="public")
    await archive.keep(Run("j", 1, 0, 0), ["kept"])
    killer = await asyncpg.connect(database_url)
    await killer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'muster logs'"
    )
    await killer.close()
    with contextlib.suppress(LogUnavailable):
        await archive.lines("j", 1, 0, 9)
    assert await archive.lines("j", 1, 0, 9) == ["kept"]
    await archive.close()


async def test_a_file_of_an_older_form_is_begun_anew(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "logs")
    old.execute("CREATE TABLE logs (number INTEGER, job TEXT, bytes INTEGER)")
    old.execute("INSERT INTO logs VALUES (1, 'j', 10)")
    old.commit()
    old.close()
    archive = FileLogArchive(tmp_path / "logs", 2**20)
    assert archive.size_bytes == 0
    await archive.keep(Run("j", 1, 0, 0), ["new"])
    await archive.close()
    again = FileLogArchive(tmp_path / "logs", 2**20)
    assert await again.lines("j", 1, 0, 9) == ["new"]
    await again.close()


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
    archive = FileLogArchive(tmp_path / "logs", 2**20)
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
    await archive.close()
