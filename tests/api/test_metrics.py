"""Numbers for Prometheus, counted once each."""

from prometheus_client.parser import text_string_to_metric_families

from controlplane.model.commands import QuarantineJob
from tests.api.stand_in import Server, native, serving


async def scrape(server: Server) -> dict[str, float]:
    """Sample -> value, with labels as Prometheus writes them."""
    status, text = await server.call("GET", "/metrics")
    assert status == 200
    return {
        sample.name
        + "".join(f"{{{k}={v}}}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_gauges_show_the_world(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", replicas=2, gpus=4))
    await server.call("POST", "/v1/jobs", native("whole", replicas=2, gpus=8))
    await server.call("POST", "/v1/nodes/node-1/cordon")
    await server.call("POST", "/v1/jobs", native("wait", replicas=2, gpus=4))
    await server.settled()
    numbers = await scrape(server)
    assert numbers["muster_jobs{phase=Running}"] == 1
    assert numbers["muster_jobs{phase=Queued}"] == 1
    # With a node cordoned it could not start even if nothing ran.
    assert numbers["muster_jobs{phase=Unschedulable}"] == 1
    assert numbers["muster_jobs_unschedulable{reason=insufficient_capacity}{remedy=nodes}"] == 1
    assert numbers["muster_gpus_unschedulable{reason=insufficient_capacity}{remedy=nodes}"] == 16
    assert numbers["muster_jobs{phase=Failed}"] == 0
    assert numbers["muster_gpus{state=used}"] == 8
    assert numbers["muster_gpus{state=free}"] == 0
    assert numbers["muster_gpus{state=unavailable}"] == 8
    assert numbers["muster_nodes{state=ready}"] == 1
    assert numbers["muster_nodes{state=cordoned}"] == 1
    assert numbers["muster_queue_jobs_waiting{queue=default}"] == 1
    assert numbers["muster_queue_gpus_used{queue=default}"] == 8
    assert numbers["muster_log_position"] == (await server.log.head()).position
    assert numbers["muster_engine_leads"] == 1


async def test_every_event_counts_once(server: Server) -> None:
    _, first = await server.call("POST", "/v1/jobs", native("good"))
    _, second = await server.call("POST", "/v1/jobs", native("bad"))
    await server.settled()
    server.cluster.finish(first["job"]["id"])
    server.cluster.finish(second["job"]["id"], code=1)
    await server.settled()
    numbers = await scrape(server)
    assert numbers["muster_events_total{type=JobSubmitted}"] == 2
    assert numbers["muster_jobs_finished_total{phase=Succeeded}"] == 1
    assert numbers["muster_jobs_finished_total{phase=Failed}"] == 0
    assert numbers["muster_job_restarts_total{cause=exit}"] == 1
    assert numbers["muster_job_queue_wait_seconds_count"] == 2
    total = sum(v for k, v in numbers.items() if k.startswith("muster_events_total"))
    assert total == (await server.log.head()).position
    assert numbers["muster_engine_step_events_sum"] == total


async def test_what_an_older_engine_recorded_is_not_counted_again(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    await server.stop_engine()
    await server.lead()
    numbers = await scrape(server)
    assert numbers["muster_events_total{type=JobSubmitted}"] == 1
    assert numbers["muster_events_total{type=EngineStarted}"] == 2


async def test_requests_are_timed_by_route_and_not_by_address(server: Server) -> None:
    await server.call("GET", "/v1/jobs/default/one")
    await server.call("GET", "/v1/jobs/default/two")
    await server.call("GET", "/nowhere")
    numbers = await scrape(server)
    name = "muster_http_request_duration_seconds_count"
    route = "{method=GET}{route=/v1/jobs/{namespace}/{name}}{status=404}"
    assert numbers[name + route] == 2
    assert numbers[name + "{method=GET}{route=unmatched}{status=404}"] == 1


async def test_watchers_are_counted(server: Server) -> None:
    headers = {"Accept": "text/event-stream"}
    async with server.session.get(f"{server.url}/v1/events", headers=headers):
        assert (await scrape(server))["muster_stream_watchers"] == 1


async def test_without_an_engine_the_rest_is_still_reported() -> None:
    async with serving(leads=False) as server:
        numbers = await scrape(server)
        assert numbers["muster_engine_leads"] == 0
        assert not any(name.startswith("muster_jobs{") for name in numbers)
        assert numbers["muster_events_total{type=JobSubmitted}"] == 0


async def test_two_servers_in_one_process_count_apart(server: Server) -> None:
    async with serving() as other:
        await other.call("POST", "/v1/jobs", native("train"))
        assert (await scrape(server))["muster_events_total{type=JobSubmitted}"] == 0
        assert (await scrape(other))["muster_events_total{type=JobSubmitted}"] == 1


async def test_quarantined_jobs_are_counted(server: Server) -> None:
    _, odd = await server.call("POST", "/v1/jobs", native("odd"))
    assert (await scrape(server))["muster_jobs_quarantined"] == 0
    command = QuarantineJob(job=odd["job"]["id"], where="schedule", error="IndexError", text="")
    server.engine_client.engine.submit(command)
    await server.settled()
    assert (await scrape(server))["muster_jobs_quarantined"] == 1
    await server.call("DELETE", "/v1/jobs/default/odd")
    await server.settled()
    assert (await scrape(server))["muster_jobs_quarantined"] == 0
