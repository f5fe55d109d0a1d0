"""Listings: filters, and pages that stay right while things come and go."""

from typing import Any

import pytest

from tests.api.stand_in import Server, native, pytorch, serving


async def names(server: Server, path: str, after: str | None = None) -> list[str]:
    """The names of all items, page after page."""
    found: list[str] = []
    while True:
        cursor = "" if after is None else f"&after={after}"
        status, page = await server.call("GET", path + cursor)
        assert status == 200, page
        found += [item["name"] for item in page["items"]]
        after = page["next"]
        if after is None:
            return found


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
        ("namespace=nobody", ""),
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
    clock = server.control.engine._clock  # type: ignore[union-attr]
    frozen = clock.now()
    clock.now = lambda: frozen  # type: ignore[method-assign]
    for i in range(7):
        await server.call("POST", "/v1/jobs", native(f"job-{i}"))
    for order in ("oldest", "newest"):
        found = await names(server, f"/v1/jobs?limit=3&order={order}")
        assert sorted(found) == [f"job-{i}" for i in range(7)]


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
    monkeypatch.setattr("api.events.SCAN_ROWS_MAX", 3)
    _, detail = await stocked.call("GET", "/v1/jobs/team-a/torch")
    types: list[str] = []
    after: Any = 0
    while after is not None:
        _, page = await stocked.call("GET", f"/v1/events?job={detail['job']['id']}&after={after}")
        types += [item["type"] for item in page["items"]]
        after = page["next"]
    assert types == ["JobSubmitted"]
