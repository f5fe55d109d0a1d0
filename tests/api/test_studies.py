"""Studies and forecasts over HTTP."""

import asyncio

import pytest

from tests.api.stand_in import START, Server, native

TRACE = "id,submit,gpus,duration\n" + "".join(f"{i},{i * 5},8,60\n" for i in range(20))


async def until_over(server: Server, address: str) -> dict:
    async with asyncio.timeout(60):
        while True:
            _, study = await server.call("GET", address)
            if study["state"] not in ("waiting", "running"):
                return study
            await asyncio.sleep(0.05)


async def test_a_study_is_asked_for_followed_and_read(server: Server):
    body = {"trace_csv": TRACE, "nodes": ["2x8", "4x8"], "policies": ["fifo", "easy"]}
    status, asked = await server.call("POST", "/v1/studies/whatif", body)
    address = f"/v1/studies/{asked['id']}"

    over = await until_over(server, address)

    assert status == 202
    assert (over["state"], over["done"], over["total"]) == ("done", 4, 4)
    _, result = await server.call("GET", f"{address}/result")
    names = [scenario["name"] for scenario in result["scenarios"]]
    assert names == ["2x8, fifo", "2x8, easy", "4x8, fifo", "4x8, easy"]
    _, report = await server.call("GET", f"{address}/report")
    assert report.startswith("<!doctype html>")
    _, listed = await server.call("GET", "/v1/studies")
    assert [study["id"] for study in listed["studies"]] == [asked["id"]]


async def test_without_a_trace_the_jobs_of_this_cluster_are_the_workload(server: Server):
    for name in ("one", "two"):
        await server.call("POST", "/v1/jobs", native(name, gpus=8))
    await server.settled()
    for job in list(server.engine_client.engine.world.jobs):
        server.cluster.finish(job)
    await server.settled()
    _, asked = await server.call("POST", "/v1/studies/whatif", {"gpus": [8]})

    study = await until_over(server, f"/v1/studies/{asked['id']}")

    assert study["state"] == "done", study
    _, result = await server.call("GET", f"/v1/studies/{asked['id']}/result")
    assert result["scenarios"][0]["replication_0"]["finished"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace_csv": "id,submit,gpus,duration\na,0,x,5\n"}, "line 2"),
        ({"policies": ["luck"]}, "'luck'"),
        ({"nodes": []}, "a study needs a cluster"),
        ({"policies": []}, "policies: the list is empty"),
        # Lists of a few kilobytes that span more than a server could build: counted, not built.
        (
            {"loads": [1 + i / 1e4 for i in range(3000)], "prices": list(range(1, 3000))},
            "8997000 scenarios; at most 10000",
        ),
        ({"loads": [1.0, 2.0] * 50, "replications": 1000}, "100000 runs; at most 10000"),
        ({"nodes": [f"{n}x8" for n in range(99_900, 99_990)]}, "more than 1000000 nodes"),
    ],
)
async def test_what_cannot_be_conducted_is_refused_with_the_reason(
    server: Server, changes, message
):
    body = {"trace_csv": TRACE, "nodes": ["2x8"]} | changes

    status, refused = await server.call("POST", "/v1/studies/whatif", body)

    assert (status, refused["code"]) == (422, "invalid_study")
    assert message in refused["detail"]


async def test_a_cancelled_study_ends_and_has_no_result(server: Server):
    rows = "".join(f"{i},{i},8,60\n" for i in range(20_000))
    body = {"trace_csv": f"id,submit,gpus,duration\n{rows}", "nodes": ["2x8"]}
    _, asked = await server.call("POST", "/v1/studies/whatif", body)
    address = f"/v1/studies/{asked['id']}"

    status, _ = await server.call("DELETE", address)
    study = await until_over(server, address)

    assert status == 200
    assert study["state"] == "cancelled"
    status, refused = await server.call("GET", f"{address}/result")
    assert (status, refused["code"]) == (409, "study_not_done")


async def test_an_unknown_study_is_not_there(server: Server):
    status, refused = await server.call("GET", "/v1/studies/missing")
    assert (status, refused["code"]) == (404, "no_such_study")


async def test_a_waiting_job_has_a_forecast_whose_error_is_noted(
    server: Server,
):
    hour = {"active_deadline_s": 3600}
    await server.call("POST", "/v1/jobs", native("first", replicas=2, gpus=8, **hour))
    await server.call("POST", "/v1/jobs", native("second", replicas=2, gpus=8, **hour))
    await server.settled()

    _, answer = await server.call("GET", "/v1/jobs/default/second/why")
    _, planned = await server.call("POST", "/v1/jobs?plan=true", native("third", gpus=8, **hour))

    _, asked = await server.call("POST", "/v1/studies/forecast", native("third", gpus=8, **hour))

    forecast = answer["forecast"]
    # Only how many futures there was time for may differ.
    assert {**asked, "forecast": None} == {**planned, "forecast": None}
    assert forecast["made_at"] < forecast["start_p50"] <= forecast["start_p90"]
    assert forecast["start_p50"] < forecast["finish_p50"] <= forecast["finish_p90"]
    assert forecast["start_p90"] <= forecast["made_at"] + 3600
    # The third study starts once the second has ended.
    assert planned["forecast"]["start_p50"] > forecast["start_p50"]
    assert asked["forecast"]["start_p50"] > forecast["start_p50"]
    server.cluster.finish(next(iter(server.engine_client.engine.world.jobs)))
    await server.settled()
    _, accuracy = await server.call("GET", "/v1/forecasts")
    assert accuracy["made"] == 3
    assert accuracy["starts"]["count"] == 1
    assert accuracy["starts"]["mean_error_s"] > 0
    assert accuracy["starts"]["by_p50"] == 1.0


async def test_a_fork_runs_in_the_background_and_has_both_futures(server: Server):
    for number in range(3):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.settled()
    wanted = {"at": START + 60, "until": START + 360, "cordon": ["node-0"]}
    status, asked = await server.call("POST", "/v1/forks", wanted)
    assert status == 202, asked
    assert (asked["kind"], asked["title"]) == ("fork", "node node-0 takes no new work")

    over = await until_over(server, f"/v1/studies/{asked['id']}")

    assert over["state"] == "done", over
    _, result = await server.call("GET", f"/v1/studies/{asked['id']}/result")
    assert result["sentences"]
    for future in ("actual", "control", "changed"):
        usage = result[future]["usage"]
        assert (usage["from"], usage["to"]) == (START + 60, START + 360)
    assert (
        result["changed"]["usage"]["cordoned"] != result["control"]["usage"]["cordoned"]
        or (result["changed"]["marks"]["counts"]["cordon"])
    )
    status, problem = await server.call("GET", f"/v1/studies/{asked['id']}/report")
    assert (status, problem["code"]) == (404, "no_report")


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": 1.0},
        {"at": START + 60, "until": START + 30},
        {"at": START + 60, "until": START + 90, "set": {"colour": "blue"}},
        {"at": START + 60, "until": START + 90, "cordon": ["none-such"]},
        {"at": START + 60, "until": START + 90, "set": {"job.default/none-such.priority": "1"}},
    ],
)
async def test_a_fork_that_cannot_be_made_is_refused_at_once(server: Server, wrong: dict):
    status, problem = await server.call("POST", "/v1/forks", wrong)
    assert (status, problem["code"]) == (422, "invalid_fork")
