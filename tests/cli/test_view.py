"""`muster view` shows a log, an export or a bundle, and changes none of them."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from api.server import Runner
from cli.errors import CliError
from cli.log.sources import parse_source
from cli.main import run
from cli.server.demo_day import CLUSTER, JOBS_AT_FIRST, arrivals, settings
from cli.server.view import showing
from controlplane.model.commands import DefineQueue
from examples.incident import night, write
from simulator.network.topology import parse_cluster


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "night.db"
    asyncio.run(write(path, night()))
    return path


def answers(path: Path, *asked: str) -> list[tuple[int, Any]]:
    return asyncio.run(_answers(path, *asked))


async def _answers(path: Path, *asked: str) -> list[tuple[int, Any]]:
    async with showing(parse_source(str(path))) as app:
        runner = Runner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as session:
                got = []
                for each in asked:
                    method, _, where = each.partition(" ")
                    async with session.request(method, url + where) as answer:
                        got.append((answer.status, await answer.json(content_type=None)))
                return got
        finally:
            await runner.cleanup()


@pytest.mark.parametrize("form", ["database", "export", "bundle"])
def test_a_log_is_shown_in_every_form_and_not_changed(log: Path, tmp_path: Path, form: str) -> None:
    path = {"database": log, "export": tmp_path / "n.jsonl", "bundle": tmp_path / "n.bundle.gz"}[
        form
    ]
    if form == "export":
        assert run(["log", "export", str(log), "-o", str(path)]) == 0
    if form == "bundle":
        assert run(["log", "export", str(log), "--from", "100", "--bundle", str(path)]) == 0
    before = hashlib.sha256(path.read_bytes()).digest()
    cluster, jobs, early, incident, refused, bounds = answers(
        path,
        "GET /v1/cluster", "GET /v1/jobs?limit=100", "GET /v1/jobs?position=2", "GET /v1/incident",
        "POST /v1/nodes/rack-0-1/cordon", "GET /v1/history",
    )  # fmt: skip
    assert cluster[1]["read_only"] is True
    assert [answer[0] for answer in (cluster, jobs, early, incident, bounds)] == [200] * 5
    assert (refused[0], refused[1]["code"]) == (403, "read_only")
    assert bounds[1]["now"] == bounds[1]["last"]["at"]
    assert any("rack-0-1" in sentence for sentence in incident[1]["sentences"])
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_what_is_no_log_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    for name, message in (("none.db", "there is no log"), ("empty.jsonl", "is empty")):
        with pytest.raises(CliError, match=message):
            answers(tmp_path / name)


def test_the_day_of_the_demo_is_the_same_for_the_same_seed_and_fits_its_cluster() -> None:
    one, two = arrivals(1), arrivals(1)
    first = [next(one) for _ in range(300)]
    assert first == [next(two) for _ in range(300)]
    times = [at for at, _ in first]
    assert times == sorted(times)
    assert times[JOBS_AT_FIRST - 1] == 0.0
    assert len({command.name for _, command in first}) == 300
    gpus = parse_cluster(CLUSTER).gpus
    assert all(0 < command.spec.gpus <= gpus / 2 for _, command in first)
    queues = {each.queue.name for each in settings() if isinstance(each, DefineQueue)}
    assert {command.spec.queue for _, command in first} <= queues
