"""The kind of the cluster, the first jobs of the lines, and failures by cause."""

from tests.api.stand_in import START, Server, native


async def crowded(server: Server) -> None:
    await server.call("PUT", "/v1/queues/urgent", {})
    for number in range(5):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.call("POST", "/v1/jobs", native("quick", gpus=8, queue="urgent"))
    await server.settled()


async def test_the_cluster_is_described(server: Server) -> None:
    await crowded(server)
    status, cluster = await server.call("GET", "/v1/cluster")
    assert status == 200, cluster
    assert (cluster["nodes"], cluster["nodes_ready"], cluster["gpus"]) == (2, 2, 16)
    assert (cluster["jobs_running"], cluster["jobs_waiting"], cluster["queues"]) == (2, 4, 2)
    assert (cluster["speed"], cluster["release"]) == (1.0, "0.1.0")


async def test_the_first_in_line_have_places_and_reasons(server: Server) -> None:
    await crowded(server)
    status, line = await server.call("GET", "/v1/line?limit=3")
    assert status == 200, line
    assert line["total"] == 4
    assert [(job["queue"], job["place"]) for job in line["items"]] == [
        ("default", 1), ("urgent", 1), ("default", 2),
    ]  # fmt: skip
    assert all(job["reason"] and job["message"] for job in line["items"])
    _, urgent = await server.call("GET", "/v1/line?queue=urgent")
    assert [job["job"] for job in urgent["items"]] == ["default/quick"]
    status, problem = await server.call("GET", "/v1/line?queue=nowhere")
    assert (status, problem["code"]) == (404, "no_such_queue")


async def test_the_line_of_the_past_can_be_seen(server: Server) -> None:
    await crowded(server)
    status, line = await server.call("GET", "/v1/line?position=1")
    assert (status, line["total"], line["items"]) == (200, 0, [])


async def test_a_reason_is_the_one_that_why_gives(server: Server) -> None:
    await crowded(server)
    _, line = await server.call("GET", "/v1/line")
    for job in line["items"]:
        _, why = await server.call("GET", f"/v1/jobs/{job['job']}/why?forecast=false")
        assert (job["place"], job["message"]) == (
            why["place_in_queue"],
            why["reasons"][0]["message"],
        )


async def test_failures_are_counted_by_cause(server: Server) -> None:
    await crowded(server)
    await server.call("POST", "/v1/nodes/node-0/drain")
    await server.settled()
    _, jobs = await server.call("GET", "/v1/jobs?phase=Running")
    server.cluster.finish(jobs["items"][0]["id"], code=1)
    await server.settled()
    status, failures = await server.call(
        "GET", f"/v1/history/failures?from={START}&to={START + 60}"
    )
    assert status == 200, failures
    causes = {(item["kind"], item["cause"]): item["count"] for item in failures["items"]}
    assert causes["cordon", "drained"] == 1
    assert causes["restart", "preemption"] == 1
    assert causes["restart", "exit"] == 1 or causes["failure", "exit"] == 1
    assert all(item["message"] for item in failures["items"])


async def test_a_waiting_job_changes_its_queue_and_its_priority(server: Server) -> None:
    await crowded(server)
    path = "/v1/jobs/default/train-4"
    status, detail = await server.call("PATCH", path, {"queue": "urgent", "priority": 9})
    assert (status, detail["job"]["queue"], detail["job"]["priority"]) == (200, "urgent", 9)
    _, line = await server.call("GET", "/v1/line?queue=urgent")
    assert [job["job"] for job in line["items"]] == ["default/train-4", "default/quick"]
    status, problem = await server.call("PATCH", path, {"queue": "nowhere"})
    assert (status, problem["code"]) == (422, "unknown_queue")
    _, running = await server.call("GET", "/v1/jobs?phase=Running")
    name = running["items"][0]["name"]
    status, problem = await server.call("PATCH", f"/v1/jobs/default/{name}", {"priority": 1})
    assert (status, problem["code"]) == (409, "cannot_change")
    _, events = await server.call("GET", f"{path}/events")
    (amended,) = [event for event in events["items"] if event["type"] == "JobAmended"]
    assert amended["payload"]["queue"] == "urgent"
