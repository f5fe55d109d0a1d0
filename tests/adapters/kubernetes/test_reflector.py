"""A store that follows an API server through gaps, cuts and missed events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from adapters.kubernetes.api.connection import Connection, Limits
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.api.reflector import Change, Key, Reflector, Retry
from tests.fake_kubernetes import FakeKubernetes
from tests.fake_kubernetes import faults as f
from tests.fake_kubernetes.store import Resource

MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAPS = Resource("", "v1", "configmaps")
QUICK = Limits(qps=0, backoff_s_first=0.001, backoff_s_max=0.01, tries=2)


class Watched:
    """A reflector with the fold of its changes: the objects that a follower takes for existing."""

    def __init__(self, reflector: Reflector, changes: list[Change]) -> None:
        self.reflector, self.changes = reflector, changes

    @property
    def believed(self) -> dict[str, str]:
        data: dict[str, str] = {}
        for change in self.changes:
            data.pop(change.key.name, None)
            if change.now is not None:
                data[change.key.name] = change.now["data"]["n"]
        return dict(sorted(data.items()))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes(tmp_path, bookmark_s=0.05, page_max=3) as api:
        yield api


@asynccontextmanager
async def following(api: FakeKubernetes, **options: Any) -> AsyncIterator[Watched]:
    connection = await Connection.open(Access(kubeconfig=api.kubeconfig), QUICK)
    changes: list[Change] = []
    retry = Retry(s_first=0.001, s_max=0.01)
    reflector = Reflector(
        connection, MAPS, on_change=changes.append, retry=retry, **{"resync_s": 60.0, **options}
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(5.0):
            await reflector.synced.wait()
        yield Watched(reflector, changes)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await connection.close()


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - it may be anything
            await asyncio.sleep(0.002)


def put(api: FakeKubernetes, name: str, n: int, **labels: str) -> None:
    document = {"kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
    if ("default", name) in api.store.objects.get(CONFIG_MAPS, {}):
        api.store.merge(CONFIG_MAPS, "default", name, {"data": {"n": str(n)}})
    else:
        api.store.create(CONFIG_MAPS, "default", {**document, "data": {"n": str(n)}})


def there(api: FakeKubernetes) -> dict[str, str]:
    return {each["metadata"]["name"]: each["data"]["n"] for each in api.store.all(CONFIG_MAPS)}


async def test_existing_and_new_objects_are_delivered_once(api: FakeKubernetes) -> None:
    for i in range(8):
        put(api, f"old-{i}", i)
    async with following(api) as watched:
        assert watched.believed == there(api)
        put(api, "new", 1)
        put(api, "old-0", 9)
        api.store.remove(CONFIG_MAPS, "default", "old-1")
        await until(lambda: watched.believed == there(api))
        assert len(watched.changes) == 8 + 3
        assert watched.reflector.items.keys() == {Key("default", name) for name in there(api)}
        assert watched.reflector.listings == 1


async def test_items_of_a_listing_know_their_kind(api: FakeKubernetes) -> None:
    put(api, "one", 1)
    async with following(api) as watched:
        (item,) = watched.reflector.items.values()
        assert (item["kind"], item["apiVersion"]) == ("ConfigMap", "v1")


async def test_only_what_is_selected_is_seen_and_an_object_that_leaves_is_gone(
    api: FakeKubernetes,
) -> None:
    put(api, "mine", 1, job="a")
    put(api, "theirs", 1)
    async with following(api, labels="job") as watched:
        assert watched.believed == {"mine": "1"}
        api.store.merge(CONFIG_MAPS, "default", "mine", {"metadata": {"labels": {"job": None}}})
        await until(lambda: watched.believed == {})


async def test_a_watch_that_is_cut_is_followed_by_a_listing(api: FakeKubernetes) -> None:
    async with following(api) as watched:
        await until(lambda: api.watches == 1)
        put(api, "one", 1)
        await until(lambda: watched.believed == {"one": "1"})
        api.cut_watches()
        put(api, "two", 2)
        await until(lambda: watched.believed == there(api))
        assert watched.reflector.listings == 2


async def test_a_watch_that_ends_in_good_order_goes_on_where_it_was(api: FakeKubernetes) -> None:
    async with following(api, resync_s=3.0) as watched:
        for n in range(3):
            put(api, "one", n)
            await until(lambda n=n: watched.believed == {"one": str(n)})  # type: ignore[misc]
        assert watched.reflector.listings == 1


async def test_after_410_everything_is_listed_again(api: FakeKubernetes) -> None:
    put(api, "one", 1)
    async with following(api) as watched:
        await until(lambda: api.watches == 1)
        # The server forgets while the connection is down, so the version we had is too old.
        api.faults.next.extend([500, 500])
        api.cut_watches()
        put(api, "two", 2)
        api.store.remove(CONFIG_MAPS, "default", "one")
        api.store.compact()
        await until(lambda: watched.believed == {"two": "2"})


async def test_a_watch_that_is_answered_410_lists_again(api: FakeKubernetes) -> None:
    async with following(api, resync_s=1.2) as watched:
        await until(lambda: api.watches == 1)
        api.faults.next.append(410)
        api.cut_watches()
        put(api, "one", 1)
        await until(lambda: watched.believed == {"one": "1"})


async def test_a_resync_finds_what_the_watch_has_missed(api: FakeKubernetes) -> None:
    put(api, "one", 1)
    put(api, "two", 1)
    async with following(api, resync_s=0.3) as watched:
        await until(lambda: api.watches == 1)
        api.faults.dropped = 1.0
        api.store.remove(CONFIG_MAPS, "default", "one")
        put(api, "two", 2)
        put(api, "three", 3)
        await until(lambda: watched.believed == {"three": "3", "two": "2"})


async def test_another_object_of_the_same_name_is_a_loss_and_a_gain(api: FakeKubernetes) -> None:
    put(api, "one", 1)
    async with following(api, resync_s=0.3) as watched:
        await until(lambda: api.watches == 1)
        api.faults.dropped = 1.0
        api.store.remove(CONFIG_MAPS, "default", "one")
        put(api, "one", 1)
        await until(lambda: len(watched.changes) == 3)
        assert [change.now is None for change in watched.changes] == [False, True, False]


async def test_bookmarks_move_the_version_on(api: FakeKubernetes) -> None:
    other = Resource("", "v1", "secrets")
    async with following(api, resync_s=60.0) as watched:
        before = watched.reflector._version
        for n in range(5):
            api.store.create(other, "default", {"metadata": {"name": f"s-{n}"}})
        await until(lambda: watched.reflector._version == str(api.store.version))
        assert watched.reflector._version != before
        assert watched.changes == []


@pytest.mark.parametrize("seed", range(4))
async def test_with_three_requests_of_ten_failing_and_events_dropped_it_comes_to_the_truth(
    api: FakeKubernetes, seed: int
) -> None:
    api.faults = f.Faults(0.3, seed=seed, dropped=0.3, delay_s=0.002)
    async with following(api, resync_s=0.2) as watched:
        for n in range(60):
            put(api, f"m-{n % 7}", n)
            if n % 5 == 0:
                api.store.remove(CONFIG_MAPS, "default", f"m-{n % 7}")
            if n % 20 == 0:
                api.cut_watches()
            await asyncio.sleep(0.002)
        await until(lambda: watched.believed == there(api))
        assert sum(api.faults.met.values()) > 0


async def test_what_a_request_made_while_everything_is_listed_stays(api: FakeKubernetes) -> None:
    """A listing of several pages shows what existed when its first page was requested."""
    for i in range(7):
        put(api, f"old-{i}", i)
    async with following(api, resync_s=0.3) as watched:
        get, reflector = reflector_get(watched.reflector), watched.reflector

        async def get_while_others_write(path: str, query: Any = None) -> dict[str, Any]:
            page = await get(path, query)
            if "continue" not in query and reflector.listings == 1:
                api.store.remove(CONFIG_MAPS, "default", "old-1")
                reflector.forget(*key_and_uid(reflector, "old-1"))
                for name in ("new", "old-2"):
                    put(api, name, 50)
                    reflector.put(answer(api, name))
            return page

        reflector._connection.get = get_while_others_write  # type: ignore[method-assign]
        watched.changes.clear()
        await until(lambda: reflector.listings == 2)
        # Nothing vanished but what was removed, and nothing that was removed came back.
        assert [each.key.name for each in watched.changes if each.now is None] == ["old-1"]
        assert {each.key.name for each in watched.changes} == {"old-1", "old-2", "new"}
        items = {key.name: each["data"]["n"] for key, each in reflector.items.items()}
        assert items == there(api)


async def test_an_answer_that_is_older_than_the_listing_does_not_outlive_it(
    api: FakeKubernetes,
) -> None:
    """The object was made and removed before the listing; only the answer came late."""
    async with following(api, resync_s=0.3) as watched:
        put(api, "short", 1)
        late = answer(api, "short")
        await until(lambda: watched.believed == {"short": "1"})
        api.faults.dropped = 1.0
        api.store.remove(CONFIG_MAPS, "default", "short")
        get, reflector = reflector_get(watched.reflector), watched.reflector

        async def get_and_be_answered(path: str, query: Any = None) -> dict[str, Any]:
            page = await get(path, query)
            reflector.put({**late, "metadata": {**late["metadata"]}})
            return page

        reflector._connection.get = get_and_be_answered  # type: ignore[method-assign]
        await until(lambda: watched.believed == {})


async def test_a_watch_that_is_silent_goes_on_with_another_one(api: FakeKubernetes) -> None:
    async with following(api, quiet_s_max=0.3) as watched:
        await until(lambda: api.watches == 1)
        api.silence_watches()
        put(api, "one", 1)
        await until(lambda: watched.believed == {"one": "1"})
        # Nothing was missed, so nothing was listed again.
        assert watched.reflector.listings == 1


def reflector_get(reflector: Reflector) -> Any:
    return reflector._connection.get


def answer(api: FakeKubernetes, name: str) -> dict[str, Any]:
    """What the server answers to the request that made or changed it."""
    document = api.store.get(CONFIG_MAPS, "default", name)
    return {**document, "metadata": {**document["metadata"]}}


def key_and_uid(reflector: Reflector, name: str) -> tuple[Key, str]:
    key = Key("default", name)
    return key, reflector.items[key]["metadata"]["uid"]
