"""Requests to an API server that fails in every way it can."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.kubernetes.api import errors as x
from adapters.kubernetes.api.connection import Connection, Limits
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.api.rate_limiter import RateLimiter
from tests.fake_kubernetes import FakeKubernetes
from tests.fake_kubernetes import faults as f
from tests.fake_kubernetes.store import Resource

MAPS = "/api/v1/namespaces/default/configmaps"
QUICK = Limits(qps=0, backoff_s_first=0.001, backoff_s_max=0.01, tries=4)
CONFIG_MAPS = Resource("", "v1", "configmaps")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes(tmp_path) as api:
        yield api


@pytest.fixture
async def connection(api: FakeKubernetes) -> AsyncIterator[Connection]:
    connection = await Connection.open(Access(kubeconfig=api.kubeconfig), QUICK)
    yield connection
    await connection.close()


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_a_document_is_made_changed_and_deleted(connection: Connection) -> None:
    made = await connection.create(MAPS, config_map("one", a="1"))
    assert made["metadata"]["uid"]
    changed = await connection.patch(f"{MAPS}/one", {"data": {"a": None, "b": "2"}})
    assert changed["data"] == {"b": "2"}
    assert (await connection.get(f"{MAPS}/one"))["data"] == {"b": "2"}
    await connection.delete(f"{MAPS}/one")
    with pytest.raises(x.NotFound):
        await connection.get(f"{MAPS}/one")


async def test_only_a_missing_object_is_named_in_the_error(connection: Connection) -> None:
    with pytest.raises(x.NotFound) as no_object:
        await connection.get(f"{MAPS}/one")
    assert no_object.value.object_name == "one"
    no_kind = x.error_of(404, b"404 page not found\n", {})
    assert isinstance(no_kind, x.NotFound)
    assert no_kind.object_name == ""


async def test_a_taken_name_is_distinguished_from_a_stale_write(
    connection: Connection,
) -> None:
    made = await connection.create(MAPS, config_map("one"))
    with pytest.raises(x.AlreadyExists):
        await connection.create(MAPS, config_map("one"))
    await connection.patch(f"{MAPS}/one", {"data": {"a": "1"}})
    with pytest.raises(x.Conflict) as stale:
        await connection.replace(f"{MAPS}/one", made)
    assert not isinstance(stale.value, x.AlreadyExists)


@pytest.mark.parametrize("fault", [429, 500, 504, f.CUT_BEFORE])
async def test_what_passes_is_tried_again(
    api: FakeKubernetes, connection: Connection, fault: int | str
) -> None:
    api.faults.next.extend([fault, fault])
    await connection.create(MAPS, config_map("one"))
    assert connection.again == 2
    assert api.requests["POST"] == 3


async def test_a_request_that_was_carried_out_before_the_cut_shows_when_it_is_tried_again(
    api: FakeKubernetes, connection: Connection
) -> None:
    api.faults.next.append(f.CUT_AFTER)
    with pytest.raises(x.AlreadyExists):
        await connection.create(MAPS, config_map("one"))
    assert len(api.store.all(CONFIG_MAPS)) == 1


async def test_what_does_not_pass_is_not_tried_again(
    api: FakeKubernetes, connection: Connection
) -> None:
    api.faults.next.append(422)
    with pytest.raises(x.Refused):
        await connection.create(MAPS, config_map("one"))
    assert api.requests["POST"] == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, x.Throttled), (500, x.ServerError), (504, x.ServerError), (410, x.Expired)],
)
async def test_trouble_that_stays_is_raised_by_its_kind(
    api: FakeKubernetes, connection: Connection, status: int, kind: type[x.ApiError]
) -> None:
    api.faults.next.extend([status] * QUICK.tries)
    with pytest.raises(kind) as raised:
        await connection.get(MAPS)
    assert raised.value.status == status


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async with FakeKubernetes(tmp_path) as api:
        connection = await Connection.open(Access(kubeconfig=api.kubeconfig), QUICK)
    try:
        with pytest.raises(x.Unreachable):
            await connection.get(MAPS)
        assert connection.again == QUICK.tries - 1
    finally:
        await connection.close()


async def test_an_answer_that_takes_too_long_is_unreachable(
    api: FakeKubernetes, connection: Connection
) -> None:
    api.faults.delay_s = 5.0
    api.faults.next.append(f.DELAY)
    with pytest.raises(x.Unreachable):
        await connection.get(MAPS, timeout_s=0.05, tries=1)


async def test_no_more_than_so_many_requests_are_under_way(api: FakeKubernetes) -> None:
    limits = QUICK._replace(in_flight=3)
    connection = await Connection.open(Access(kubeconfig=api.kubeconfig), limits)
    api.faults.rate, api.faults.kinds = 1.0, (f.DELAY,)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, connection.under_way)
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(connection.get(MAPS) for _ in range(12)))
    watching.cancel()
    await connection.close()
    assert most == 3


async def test_an_unauthorized_client_renews_its_credentials_once(
    api: FakeKubernetes, connection: Connection
) -> None:
    connection._client.configuration.api_key["BearerToken"] = "Bearer old"
    await connection.get(MAPS)
    assert api.requests["GET"] == 2
    api.faults.next.extend([401, 401])
    with pytest.raises(x.NotAllowed):
        await connection.get(MAPS)


async def test_unusable_access_is_reported(tmp_path: Path) -> None:
    with pytest.raises(x.BadAccess, match="no kubeconfig"):
        await Connection.open(Access(kubeconfig=str(tmp_path / "none")))
    with pytest.raises(x.BadAccess, match="account of this pod"):
        await Connection.open(Access())


async def test_a_missing_context_is_reported(api: FakeKubernetes) -> None:
    with pytest.raises(x.BadAccess, match="other"):
        await Connection.open(Access(kubeconfig=api.kubeconfig, context="other"))


def test_a_rate_lets_a_burst_through_and_then_one_after_the_other() -> None:
    now = 100.0
    rate = RateLimiter(10.0, 3, lambda: now)
    assert [round(rate.take(), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    now += 10.0
    assert [round(rate.take(), 6) for _ in range(4)] == [0.0, 0.0, 0.0, 0.1]


def test_without_a_rate_no_request_waits() -> None:
    rate = RateLimiter(0.0, 0, lambda: 0.0)
    assert [rate.take() for _ in range(1000)] == [0.0] * 1000


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"Retry-After": "7"}, b"{}", 7.0),
        ({}, b'{"details": {"retryAfterSeconds": 3}}', 3.0),
        ({}, b"<html>too many</html>", None),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"{}", None),
    ],
)
def test_how_long_the_server_asks_us_to_wait(
    headers: dict[str, str], body: bytes, expected: float | None
) -> None:
    assert x.error_of(429, body, headers).retry_after_s == expected
