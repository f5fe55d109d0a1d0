"""The world as it was."""

import asyncio
from datetime import UTC, datetime

from controlplane.log.snapshots import state_hash
from tests.api.stand_in import START, Server, native


async def test_the_state_at_every_position_is_the_one_that_was(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    end = (await server.log.head()).position
    engine = server.engine_client.engine
    assert engine is not None
    for position in range(end + 1):
        status, state = await server.call("GET", f"/v1/state?position={position}")
        assert (status, state["position"]) == (200, position)
    assert state["state_hash"] == state_hash(engine.world)
    assert state["jobs"][0]["phase"] == "Running"
    assert [node["name"] for node in state["nodes"]] == ["node-0", "node-1"]
    assert state["queues"][0]["gpus_used"] == 1


async def test_without_a_question_it_is_the_state_now(server: Server) -> None:
    _, state = await server.call("GET", "/v1/state")
    assert state["position"] == (await server.log.head()).position


async def test_an_instant_may_be_seconds_or_a_date(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    rows = await server.log.read(0, 100)
    submitted = next(row for row in rows if row.type == "JobSubmitted")
    _, state = await server.call("GET", f"/v1/state?at={submitted.at!r}")
    assert [job["name"] for job in state["jobs"]] == ["train"]
    _, state = await server.call("GET", f"/v1/state?at={START - 1}")
    assert (state["position"], state["jobs"]) == (0, [])
    later = datetime.fromtimestamp(START + 60, UTC).isoformat().replace("+", "%2B")
    _, state = await server.call("GET", f"/v1/state?at={later}")
    assert state["position"] == len(rows)


async def test_many_at_once_are_answered_or_sent_away(server: Server) -> None:
    answers = await asyncio.gather(*(server.call("GET", "/v1/state") for _ in range(30)))
    assert {status for status, _ in answers} <= {200, 503}
    assert 200 in {status for status, _ in answers}
