"""The story of a job in sentences."""

from tests.api.stand_in import Server, native


async def test_a_story_has_a_sentence_for_each_event_of_the_job(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("one", gpus=8))
    await server.call("POST", "/v1/jobs", native("two", gpus=8))
    await server.settled()
    _, story = await server.call("GET", "/v1/jobs/default/one/story")
    _, events = await server.call("GET", "/v1/jobs/default/one/events")
    assert [line["position"] for line in story["items"]] == [e["position"] for e in events["items"]]
    assert story["total"] == len(events["items"])
    assert story["items"][0]["message"].startswith("submitted to queue default: 1 rank, 8 GPUs")
    assert story["items"][0]["actor"] == events["items"][0]["actor"] != ""


async def test_a_story_ends_at_the_instant_that_is_asked_for(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("one", gpus=8))
    await server.settled()
    head = (await server.log.head()).position
    await server.call("POST", "/v1/jobs/default/one/cancel")
    await server.call("DELETE", "/v1/jobs/default/one")
    await server.settled()
    assert (await server.call("GET", "/v1/jobs/default/one/story"))[0] == 404
    status, story = await server.call("GET", f"/v1/jobs/default/one/story?position={head}")
    assert status == 200
    assert story["items"][-1]["position"] <= head
    assert all("cancel" not in line["message"] for line in story["items"])


async def test_a_limited_story_has_the_last_events(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("one", gpus=8))
    await server.settled()
    _, whole = await server.call("GET", "/v1/jobs/default/one/story")
    _, end = await server.call("GET", "/v1/jobs/default/one/story?limit=2")
    assert end == {"total": whole["total"], "items": whole["items"][-2:]}
