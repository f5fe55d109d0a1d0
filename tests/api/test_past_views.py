"""Views of the past: the same questions as of the present, at an instant."""

import asyncio

from controlplane.log.replay import rebuild
from controlplane.queries.queries import job_view
from studies.history.checkpoints import StateCheckpoints
from tests.api.stand_in import START, Server, native


async def busy(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", gpus=8))
    await server.call("POST", "/v1/jobs", native("wide", replicas=2, gpus=8))
    await server.settled()
    await server.call("PUT", "/v1/queues/team-a", {"nominal": 4})
    await server.call("POST", "/v1/jobs/default/train/cancel")
    await server.settled()


async def positions_of(server: Server, *types: str) -> list[int]:
    rows = await server.log.read(0, 1_000)
    return [row.position for row in rows if row.type in types]


async def test_a_list_of_jobs_is_the_one_of_its_position(server: Server) -> None:
    await busy(server)
    end = (await server.log.head()).position
    for position in range(end + 1):
        world = (await rebuild(server.log, position=position)).world
        status, page = await server.call("GET", f"/v1/jobs?position={position}")
        assert status == 200
        phases = {job.name: job_view(job).phase for job in world.jobs.values()}
        assert {job["name"]: job["phase"] for job in page["items"]} == phases


async def test_an_answer_says_as_of_which_event_it_is(server: Server) -> None:
    await busy(server)
    rows = await server.log.read(0, 1_000)
    row = rows[5]
    last = max(other.position for other in rows if other.at <= row.at)
    for path in ("/v1/jobs", "/v1/nodes", "/v1/queues", "/v1/policy", "/v1/nodes/node-0"):
        async with server.session.get(f"{server.url}{path}?at={row.at!r}") as answer:
            assert answer.status == 200
            assert answer.headers["Muster-Position"] == str(last)
        async with server.session.get(f"{server.url}{path}?position=5") as answer:
            assert answer.headers["Muster-Position"] == "5"
            assert float(answer.headers["Muster-At"]) == round(rows[4].at, 6)
        async with server.session.get(f"{server.url}{path}") as answer:
            assert answer.headers["Muster-Position"] == str(rows[-1].position)


async def test_a_job_and_its_reasons_are_those_of_then(server: Server) -> None:
    await busy(server)
    (waits,) = [
        row.position
        for row in await server.log.read(0, 1_000)
        if row.type == "GangWaiting" and b'"wide"' not in row.payload
    ][:1]
    _, then = await server.call("GET", f"/v1/jobs/default/wide?position={waits}")
    _, now = await server.call("GET", "/v1/jobs/default/wide")
    assert (then["job"]["phase"], now["job"]["phase"]) == ("Queued", "Running")
    _, reasons = await server.call("GET", f"/v1/jobs/default/wide/why?position={waits}")
    assert (reasons["phase"], reasons["place_in_queue"]) == ("Queued", 1)
    assert reasons["forecast"] is None
    status, problem = await server.call("GET", "/v1/jobs/default/wide?position=1")
    assert (status, problem["code"]) == (404, "no_such_job")
    status, _ = await server.call("GET", f"/v1/jobs/default/wide?at={START - 9}")
    assert status == 404


async def test_queues_come_and_go(server: Server) -> None:
    await busy(server)
    (defined,) = await positions_of(server, "QueueDefined")
    status, _ = await server.call("GET", f"/v1/queues/team-a?position={defined - 1}")
    assert status == 404
    status, queue = await server.call("GET", f"/v1/queues/team-a?position={defined}")
    assert (status, queue["nominal"]) == (200, 4)


async def test_a_position_beyond_the_end_is_refused(server: Server) -> None:
    for path in ("/v1/jobs", "/v1/nodes", "/v1/queues", "/v1/jobs/default/x/why"):
        status, problem = await server.call("GET", f"{path}?position=9999")
        assert (status, problem["code"], problem["field"]) == (404, "no_such_position", "position")
    status, problem = await server.call("GET", "/v1/jobs?at=yesterday")
    assert (status, problem["code"]) == (400, "invalid_parameter")


async def test_many_may_look_at_the_past_at_once(server: Server) -> None:
    await busy(server)
    end = (await server.log.head()).position
    asked = [server.call("GET", f"/v1/jobs?position={1 + n % end}") for n in range(60)]
    assert {status for status, _ in await asyncio.gather(*asked)} == {200}


async def test_checkpoints_are_bounded_and_near(server: Server) -> None:
    await busy(server)
    kept = StateCheckpoints(every=1, checkpoints_max=8)
    end = (await server.log.head()).position
    for position in range(1, end + 1):
        kept.offer((await rebuild(server.log, position=position)).world)
    assert 4 <= len(kept) <= 8
    for position in range(end + 1):
        checkpoint = kept.before(position)
        assert (0 if checkpoint is None else checkpoint.position) <= position
    last = kept.before(end)
    assert last is not None
    assert end - last.position < 8
    few = StateCheckpoints(every=1, jobs_max=5)
    for position in range(1, end + 1):
        few.offer((await rebuild(server.log, position=position)).world)
    assert 1 <= len(few) <= 5
