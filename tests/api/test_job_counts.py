"""The number of jobs by phase."""

from tests.api.stand_in import Server, native


async def test_jobs_are_counted_by_phase_now_and_then(server: Server) -> None:
    _, none = await server.call("GET", "/v1/counts/jobs")
    assert none["total"] == 0
    assert set(none["phases"].values()) == {0}
    for name in ("one", "two", "three"):
        await server.call("POST", "/v1/jobs", native(name, gpus=8))
    await server.settled()
    head = (await server.log.head()).position
    await server.call("POST", "/v1/jobs/default/one/suspend")
    await server.settled()
    _, then = await server.call("GET", f"/v1/counts/jobs?position={head}")
    _, now = await server.call("GET", "/v1/counts/jobs")
    assert (then["phases"]["Running"], then["phases"]["Queued"]) == (2, 1)
    assert (now["phases"]["Running"], now["phases"]["Suspended"]) == (2, 1)
    assert then["total"] == now["total"] == 3
