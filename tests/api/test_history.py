"""The log on the axis of time, over HTTP."""

import asyncio
from datetime import UTC, datetime

from adapters.logs.memory_log import MemoryLog
from api.history.history_index import HISTORY_FOLLOWER, HistoryFollower
from tests.api.stand_in import START, Server, native, serving

PARTS = ("productive", "starting", "held_idle", "down", "cordoned", "fragmented", "free")


async def busy(server: Server, jobs: int = 3) -> None:
    for number in range(jobs):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=4))
    await server.settled()


async def caught_up(follower: HistoryFollower, position: int) -> None:
    for _ in range(500):
        if follower.index.position >= position:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"it is at {follower.index.position}")


async def test_the_bounds_of_the_log_are_known_in_time(server: Server) -> None:
    await busy(server)
    status, history = await server.call("GET", "/v1/history")
    assert status == 200
    rows = await server.log.read(0, 1_000)
    assert history["first"] == {"position": 1, "at": rows[0].at}
    assert history["last"] == {"position": rows[-1].position, "at": rows[-1].at}
    assert history["indexed"]["position"] == rows[-1].position
    assert history["instant"] is None


async def test_a_time_has_a_position_and_a_position_a_time(server: Server) -> None:
    await busy(server)
    rows = await server.log.read(0, 1_000)
    for row in rows:
        _, history = await server.call("GET", f"/v1/history?position={row.position}")
        assert history["instant"] == {"position": row.position, "at": row.at}
        last = max(other.position for other in rows if other.at <= row.at)
        _, history = await server.call("GET", f"/v1/history?at={row.at!r}")
        assert history["instant"]["position"] == last
    later = datetime.fromtimestamp(START + 9_999, UTC).isoformat().replace("+", "%2B")
    _, history = await server.call("GET", f"/v1/history?at={later}")
    assert history["instant"]["position"] == rows[-1].position
    _, history = await server.call("GET", "/v1/history?at=1")
    assert history["instant"] is None
    status, problem = await server.call("GET", "/v1/history?position=99999")
    assert (status, problem["code"]) == (404, "no_such_position")


async def test_an_empty_log_has_no_bounds() -> None:
    async with serving(leads=False) as server:
        status, answer = await server.call("GET", "/v1/history")
        assert (status, answer["first"], answer["last"]) == (200, None, None)
        for path in ("marks", "usage"):
            status, answer = await server.call("GET", f"/v1/history/{path}")
            assert (status, answer["position"]) == (200, 0)


async def test_marks_name_what_happened(server: Server) -> None:
    await busy(server)
    await server.call("POST", "/v1/nodes/node-0/drain")
    await server.call("PUT", "/v1/queues/team-a", {"nominal": 4})
    await server.call("PUT", "/v1/policy", {"discipline": "easy"})
    await server.settled()
    status, marks = await server.call("GET", f"/v1/history/marks?from={START - 1}&to={START + 60}")
    assert status == 200, marks
    kinds = {mark["kind"] for mark in marks["items"]}
    assert {"leader", "cordon", "restart", "queue", "policy"} <= kinds
    assert not marks["thinned"]
    assert marks["total"] == len(marks["items"])
    assert {kind: sum(bins) for kind, bins in marks["counts"].items()}["policy"] == 1
    restart = next(mark for mark in marks["items"] if mark["kind"] == "restart")
    assert restart["job"].startswith("default/train-")
    assert "the gang restarts" in restart["message"]
    cordon = next(mark for mark in marks["items"] if mark["kind"] == "cordon")
    assert cordon["node"] == "node-0"
    _, only = await server.call("GET", "/v1/history/marks?kind=policy&kind=queue&limit=1")
    assert set(only["counts"]) == {"policy", "queue"}
    assert (len(only["items"]), only["thinned"]) == (1, True)


async def test_usage_adds_up_in_every_bin(server: Server) -> None:
    await busy(server)
    path = f"/v1/history/usage?from={START}&to={START + 60}&bins=30&queues=true"
    status, usage = await server.call("GET", path)
    assert status == 200, usage
    assert usage["bin_s"] == 2.0
    assert all(len(usage[part]) == 30 for part in (*PARTS, "total", "waiting_gpus"))
    for number in range(30):
        assert abs(sum(usage[part][number] for part in PARTS) - usage["total"][number]) < 0.01
    assert (usage["productive"][-1], usage["free"][-1], usage["total"][-1]) == (12, 4, 16)
    assert sum(usage["starts"]) == 3
    assert usage["queues"]["default"]["used_gpus"][-1] == 12
    await server.call("POST", "/v1/nodes/node-1/cordon")
    _, usage = await server.call(
        "GET", f"/v1/history/usage?from={START + 100}&to={START + 110}&bins=1"
    )
    assert usage["cordoned"][0] + usage["free"][0] == 4


async def test_a_span_that_ends_before_it_begins_is_refused(server: Server) -> None:
    for path in ("marks", "usage"):
        status, problem = await server.call("GET", f"/v1/history/{path}?from=20&to=10")
        assert (status, problem["code"], problem["field"]) == (400, "invalid_parameter", "to")
        status, problem = await server.call("GET", f"/v1/history/{path}?bins=100000")
        assert (status, problem["code"]) == (400, "invalid_parameter")


async def test_the_index_is_the_same_after_a_restart() -> None:
    log = MemoryLog()
    async with serving(log=log) as server:
        await busy(server, jobs=6)
        await server.call("POST", "/v1/nodes/node-0/drain")
        await server.settled()
        span = f"from={START}&to={START + 60}&bins=7"
        _, usage = await server.call("GET", f"/v1/history/usage?{span}")
        _, marks = await server.call("GET", f"/v1/history/marks?{span}")
    async with serving(log=log, leads=False) as server:
        follower = server.app[HISTORY_FOLLOWER]
        await caught_up(follower, marks["position"])
        _, usage_again = await server.call("GET", f"/v1/history/usage?{span}")
        _, marks_again = await server.call("GET", f"/v1/history/marks?{span}")
        assert (usage_again, marks_again) == (usage, marks)
        # A leader goes on where the reading stopped.
        await server.lead()
        _, history = await server.call("GET", "/v1/history")
        assert history["indexed"] == history["last"]


async def test_batches_that_were_missed_are_read(server: Server) -> None:
    follower = server.app[HISTORY_FOLLOWER]
    server.engine_client._listeners.remove(follower.record)
    await busy(server, jobs=1)
    behind = follower.index.position
    server.engine_client.listen(follower.record)
    await server.call("POST", "/v1/jobs", native("late"))
    await server.settled()
    await caught_up(follower, (await server.log.head()).position)
    assert follower.index.position > behind
    _, usage = await server.call(
        "GET", f"/v1/history/usage?from={START + 50}&to={START + 51}&bins=1"
    )
    assert usage["productive"] == [5]


async def test_a_timeline_has_bars_waits_and_outages(server: Server) -> None:
    await busy(server, jobs=5)
    await server.call("POST", "/v1/nodes/node-1/cordon")
    await server.call("POST", "/v1/jobs/default/train-0/cancel")
    await server.settled()
    status, timeline = await server.call(
        "GET", f"/v1/history/timeline?from={START - 5}&to={START + 60}"
    )
    assert status == 200, timeline
    assert (timeline["origin"], timeline["bars_total"]) == (START - 5, 5)
    bars, jobs, nodes = timeline["bars"], timeline["jobs"], timeline["nodes"]
    assert {node["name"] for node in nodes} == {"node-0", "node-1"}
    assert {len(column) for column in bars.values()} == {5}
    named = {jobs[job]["name"]: index for index, job in enumerate(bars["job"])}
    assert set(named) == {f"default/train-{number}" for number in range(5)}
    ended = named["default/train-0"]
    assert timeline["ends"][bars["how"][ended]] == "cancelled"
    assert bars["to"][ended] is not None
    going = named["default/train-1"]
    assert (bars["to"][going], bars["how"][going], bars["gpus"][going]) == (None, 0, 4)
    assert bars["running"][going] >= bars["from"][going] >= 5
    assert bin(bars["devices"][going]).count("1") == 4
    assert {jobs[job]["name"] for job in timeline["waits"]["job"]} >= {"default/train-4"}
    assert [nodes[node]["name"] for node in timeline["outages"]["node"]] == ["node-1"]
    assert timeline["outages"]["cordoned"] == [1]


async def test_a_timeline_of_jobs_has_one_bar_for_each_attempt(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("wide", replicas=2, gpus=8))
    await server.settled()
    _, nodes = await server.call("GET", "/v1/history/timeline?last_s=60")
    assert (nodes["bars_total"], nodes["bars"]["gpus"]) == (2, [8, 8])
    _, jobs = await server.call("GET", "/v1/history/timeline?last_s=60&lanes=jobs")
    assert (jobs["bars_total"], jobs["bars"]["gpus"], jobs["bars"]["node"]) == (1, [16], [-1])
    _, few = await server.call("GET", "/v1/history/timeline?last_s=60&limit=1")
    assert (few["bars_total"], len(few["bars"]["job"])) == (2, 1)


async def test_the_latest_span_is_not_mixed_with_another(server: Server) -> None:
    status, problem = await server.call("GET", "/v1/history/timeline?last_s=60&to=9")
    assert (status, problem["code"], problem["field"]) == (400, "invalid_parameter", "last_s")


async def test_equal_questions_are_answered_once_a_second(server: Server) -> None:
    await busy(server)
    _, first = await server.call("GET", "/v1/history/usage?last_s=60")
    await server.call("POST", "/v1/jobs", native("more"))
    _, again = await server.call("GET", "/v1/history/usage?last_s=60")
    assert again == first
    _, other = await server.call("GET", "/v1/history/usage?last_s=61")
    assert other["position"] > first["position"]


async def test_the_outlook_names_starts_and_ends(server: Server) -> None:
    for number in range(6):
        body = native(f"train-{number}", gpus=4, active_deadline_s=600)
        await server.call("POST", "/v1/jobs", body)
    await server.settled()
    status, outlook = await server.call("GET", "/v1/forecasts/outlook?horizon_s=7200")
    assert status == 200, outlook
    assert outlook["runs"] >= 1
    jobs = {job["job"]: job for job in outlook["jobs"]}
    assert jobs["default/train-0"]["start"] is None
    waits = jobs["default/train-5"]
    assert outlook["made_at"] <= waits["start"]["p10"] <= waits["start"]["p50"]
    assert waits["end"]["p50"] is None or waits["end"]["p50"] > waits["start"]["p50"]
    assert outlook["used_gpus"]["p50"][0] == 16
    assert outlook["waiting_gpus"]["p50"][0] > 0
    assert outlook["until"] == outlook["made_at"] + 7200
    status, problem = await server.call("GET", "/v1/forecasts/outlook?horizon_s=0")
    assert (status, problem["code"]) == (400, "invalid_parameter")


async def test_the_shortest_span_of_a_far_future_still_has_bins(server: Server) -> None:
    status, usage = await server.call("GET", "/v1/history/usage?from=1e11&bins=372")
    assert status == 200
    assert None not in usage["total"]
