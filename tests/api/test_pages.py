"""Listings: filters, and pages that stay right while things come and go."""

from typing import Any

import pytest

from tests.api.stand_in import START, Server, native, pytorch, serving


async def names(server: Server, path: str, after: str | None = None) -> list[str]:
    """The names of all items, page after page."""
    listed: list[str] = []
    while True:
        cursor = "" if after is None else f"&after={after}"
        status, page = await server.call("GET", path + cursor)
        assert status == 200, page
        listed += [item["name"] for item in page["items"]]
        after = page["next"]
        if after is None:
            return listed


@pytest.fixture
async def stocked(server: Server) -> Server:
    """Jobs a to e, and a PyTorchJob in another namespace."""
    await server.call("PUT", "/v1/queues/other", {})
    for name in "abcde":
        queue = "other" if name in "bd" else "default"
        await server.call("POST", "/v1/jobs", native(name, gpus=4, queue=queue))
    await server.call("POST", "/v1/jobs", pytorch("torch"))
    await server.settled()
    return server


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "a b c d e torch"),
        ("namespace=team-a", "torch"),
        ("namespace=missing", ""),
        ("queue=other", "b d"),
        ("kind=PyTorchJob", "torch"),
        ("name=to", "torch"),
        ("name=o", ""),
        ("phase=Running", "a b c d"),
        ("phase=Queued", "e torch"),
        ("phase=Queued&phase=Running", "a b c d e torch"),
        ("phase=Succeeded", ""),
        ("phase=Running&queue=other", "b d"),
        ("order=newest", "torch e d c b a"),
        ("order=newest&phase=Running", "d c b a"),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_filters_and_pages(stocked: Server, query: str, expected: str, limit: int) -> None:
    assert await names(stocked, f"/v1/jobs?limit={limit}&{query}") == expected.split()


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_jobs_that_come_and_go_do_not_shift_the_pages(stocked: Server, order: str) -> None:
    path = f"/v1/jobs?limit=2&order={order}"
    _, first = await stocked.call("GET", path)
    shown = [item["name"] for item in first["items"]]
    # The very job at which the cursor stands goes, and so does the one before it.
    for item in first["items"]:
        await stocked.call("DELETE", f"/v1/jobs/{item['namespace']}/{item['name']}")
    await stocked.settled()
    await stocked.call("POST", "/v1/jobs", native("new"))
    rest = await names(stocked, path, first["next"])
    there = ["a", "b", "c", "d", "e", "torch"]
    seen = shown + rest
    assert [name for name in seen if name != "new"] == (there if order == "oldest" else there[::-1])
    assert ("new" in seen) == (order == "oldest")


async def test_jobs_of_one_instant_are_paged_without_loss(server: Server) -> None:
    clock = server.engine_client.engine._clock  # type: ignore[union-attr]
    frozen = clock.now()
    clock.now = lambda: frozen  # type: ignore[method-assign]
    for i in range(7):
        await server.call("POST", "/v1/jobs", native(f"job-{i}"))
    for order in ("oldest", "newest"):
        listed = await names(server, f"/v1/jobs?limit=3&order={order}")
        assert sorted(listed) == [f"job-{i}" for i in range(7)]


async def test_nodes_are_paged() -> None:
    async with serving(nodes=5) as server:
        expected = [f"node-{i}" for i in range(5)]
        assert await names(server, "/v1/nodes?limit=2") == expected
        assert await names(server, "/v1/nodes?limit=5") == expected


async def test_queues_are_paged(server: Server) -> None:
    for name in ("zoo", "alpha", "mid"):
        await server.call("PUT", f"/v1/queues/{name}", {})
    assert await names(server, "/v1/queues?limit=1") == ["alpha", "default", "mid", "zoo"]


async def test_events_are_paged_in_order(stocked: Server) -> None:
    positions: list[int] = []
    after: Any = 0
    while after is not None:
        _, page = await stocked.call("GET", f"/v1/events?limit=7&after={after}")
        positions += [item["position"] for item in page["items"]]
        after = page["next"]
    assert positions == list(range(1, (await stocked.log.head()).position + 1))


async def test_a_jobs_events_are_its_own(stocked: Server) -> None:
    _, detail = await stocked.call("GET", "/v1/jobs/default/c")
    job = detail["job"]["id"]
    types: list[str] = []
    after: Any = 0
    while after is not None:
        _, page = await stocked.call("GET", f"/v1/jobs/default/c/events?limit=2&after={after}")
        assert all(item["stream"] == job for item in page["items"])
        types += [item["type"] for item in page["items"]]
        after = page["next"]
    assert types == ["JobSubmitted", "GangPlaced", "RanksStarted", "GangStarted"]
    _, page = await stocked.call("GET", f"/v1/events?job={job}")
    assert [item["type"] for item in page["items"]] == types


async def test_a_search_through_a_long_log_goes_on_where_it_stopped(
    stocked: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.history.events.SCAN_ROWS_MAX", 3)
    _, detail = await stocked.call("GET", "/v1/jobs/team-a/torch")
    types: list[str] = []
    after: Any = 0
    while after is not None:
        _, page = await stocked.call("GET", f"/v1/events?job={detail['job']['id']}&after={after}")
        types += [item["type"] for item in page["items"]]
        after = page["next"]
    assert types == ["JobSubmitted"]


async def test_jobs_are_looked_for_by_anything(server: Server) -> None:
    for name, labels in (
        ("bert-large", {"user": "ann", "team": "nlp"}),
        ("resnet", {"user": "bob"}),
    ):
        body = native(name, gpus=8, queue="default")
        body["metadata"]["labels"] = labels
        await server.call("POST", "/v1/jobs", body)
    await server.settled()

    async def listed(query: str) -> list[str]:
        status, page = await server.call("GET", f"/v1/jobs?{query}")
        assert status == 200, page
        return [job["name"] for job in page["items"]]

    assert await listed("search=LARGE") == ["bert-large"]
    assert await listed("search=ann") == ["bert-large"]
    assert await listed("search=default/res") == ["resnet"]
    assert await listed("search=nothing-such") == []
    assert await listed("user=bob") == ["resnet"]
    assert await listed("label=team") == ["bert-large"]
    assert await listed("label=team%3Dnlp&label=user%3Dann") == ["bert-large"]
    assert await listed("label=team%3Dvision") == []
    assert await listed(f"since={START + 1_000}") == []
    assert await listed(f"until={START + 1_000}") == ["bert-large", "resnet"]


async def test_waiting_jobs_are_listed_with_their_place_and_reason(server: Server) -> None:
    for number in range(4):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.settled()
    _, page = await server.call("GET", "/v1/jobs")
    assert [job["place_in_queue"] for job in page["items"]] == [None, None, 1, 2]
    assert all(job["wait_reason"] and job["wait_message"] for job in page["items"][2:3])
    assert [job["wait_reason"] for job in page["items"][:2]] == ["", ""]
