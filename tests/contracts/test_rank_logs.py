"""What every archive of rank logs promises: lines that outlive their pods, within a size."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from adapters.database.database import Database
from adapters.database.opening import open_database
from adapters.database.rank_logs import DatabaseRankLogs
from controlplane.model.errors import LogUnavailable
from controlplane.ports import ContainerRun

Opened = Callable[[int], Awaitable[DatabaseRankLogs]]


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "sqlite":
        return tmp_path / "m.db"
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
async def opened(where: str | Path) -> AsyncIterator[Opened]:
    """Opens the same archive once more, with a size."""
    databases: list[Database] = []

    async def open_it(bytes_max: int) -> DatabaseRankLogs:
        databases.append(await open_database(where))
        return DatabaseRankLogs(databases[-1], bytes_max)

    yield open_it
    for database in databases:
        await database.close()


def noise(n: int) -> list[str]:
    """Lines that do not compress well."""
    return [f"{(n * 7919 + i * 104729) ** 5:x}" for i in range(50)]


async def test_what_was_kept_is_read_back_the_last_lines_first_to_stay(opened: Opened) -> None:
    archive = await opened(2**20)
    await archive.keep(ContainerRun("j", 1, 0, 0), ["a", "b", "ü"])
    await archive.keep(ContainerRun("j", 1, 0, 1), ["c"])
    await archive.keep(ContainerRun("j", 2, 0, 0), ["other"])
    assert await archive.lines("j", 1, 0, 10) == ["a", "b", "ü", "c"]
    assert await archive.lines("j", 1, 0, 2) == ["ü", "c"]
    assert await archive.lines("j", 1, 1, 10) == []


async def test_a_run_is_kept_once_with_what_came_last(opened: Opened) -> None:
    archive = await opened(2**20)
    await archive.keep(ContainerRun("j", 1, 0, 0), ["early"])
    await archive.keep(ContainerRun("j", 1, 0, 0), ["early", "late"])
    assert await archive.lines("j", 1, 0, 10) == ["early", "late"]


async def test_it_stays_within_its_size_and_the_oldest_go_first(opened: Opened) -> None:
    archive = await opened(20_000)
    for n in range(40):
        await archive.keep(ContainerRun("j", n, 0, 0), noise(n))
        assert archive.size_bytes <= 20_000
    there = [n for n in range(40) if await archive.lines("j", n, 0, 1)]
    assert there == list(range(there[0], 40))
    assert 2 <= len(there) < 40
    again = await opened(20_000)
    assert await again.lines("j", 39, 0, 100) == noise(39)
    assert again.size_bytes > 0


async def test_what_is_larger_than_all_of_it_is_not_kept(opened: Opened) -> None:
    archive = await opened(10)
    await archive.keep(ContainerRun("j", 1, 0, 0), noise(1))
    assert await archive.lines("j", 1, 0, 10) == []


async def test_a_job_that_is_deleted_is_forgotten(opened: Opened) -> None:
    archive = await opened(2**20)
    await archive.keep(ContainerRun("a", 1, 0, 0), ["x"])
    await archive.keep(ContainerRun("b", 1, 0, 0), ["y"])
    await archive.forget("a")
    assert await archive.lines("a", 1, 0, 9) == []
    assert await archive.lines("b", 1, 0, 9) == ["y"]


async def test_every_container_has_lines_of_its_own(opened: Opened) -> None:
    archive = await opened(2**20)
    await archive.keep(ContainerRun("j", 1, 0, 0, 0, "main"), ["of main"])
    await archive.keep(ContainerRun("j", 1, 0, 0, 1, "sidecar"), ["of sidecar"])
    await archive.keep(ContainerRun("j", 1, 0, 0, -1, "prepare"), ["of prepare"])
    await archive.keep(ContainerRun("j", 1, 0, 1, 1, "sidecar"), ["and again"])
    assert await archive.containers("j", 1, 0) == ["prepare", "main", "sidecar"]
    assert await archive.lines("j", 1, 0, 9) == ["of main"]
    assert await archive.lines("j", 1, 0, 9, "main") == ["of main"]
    assert await archive.lines("j", 1, 0, 9, "sidecar") == ["of sidecar", "and again"]
    assert await archive.lines("j", 1, 0, 9, "prepare") == ["of prepare"]
    assert await archive.lines("j", 1, 0, 9, "other") == []


async def test_what_one_process_keeps_another_reads(opened: Opened) -> None:
    one, other = await opened(20_000), await opened(20_000)
    await asyncio.gather(
        one.keep(ContainerRun("j", 1, 0, 0), ["of one"]),
        other.keep(ContainerRun("j", 2, 0, 0), ["of other"]),
    )
    assert await other.lines("j", 1, 0, 9) == ["of one"]
    assert await one.lines("j", 2, 0, 9) == ["of other"]


async def test_a_log_in_memory_has_an_archive_in_memory() -> None:
    database = await open_database("sqlite:///:memory:")
    archive = DatabaseRankLogs(database, 2**20)
    await asyncio.gather(*(archive.keep(ContainerRun("j", 1, n, 0), [f"{n}"]) for n in range(20)))
    lines = await asyncio.gather(*(archive.lines("j", 1, n, 9) for n in range(20)))
    assert lines == [[f"{n}"] for n in range(20)]
    await database.close()


async def test_lines_that_cannot_be_kept_are_reported_and_asked_for_again(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = await open_database(database_url)
    archive = DatabaseRankLogs(database, 20_000)
    await archive.keep(ContainerRun("j", 1, 0, 0), ["kept"])
    admin = await asyncpg.connect(database_url)
    await admin.execute("ALTER TABLE muster.rank_logs RENAME TO away")
    await archive.keep(ContainerRun("j", 2, 0, 0), ["lost"])
    assert "what rank 0 of job j wrote is not kept" in caplog.text
    with pytest.raises(LogUnavailable, match="holds something else"):
        await archive.lines("j", 2, 0, 9)
    await admin.execute("ALTER TABLE muster.away RENAME TO rank_logs")
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muster'"
    )
    await admin.close()
    with contextlib.suppress(LogUnavailable):
        await archive.lines("j", 1, 0, 9)
    assert await archive.lines("j", 1, 0, 9) == ["kept"]
    await database.close()
