"""Requests made up from the OpenAPI document: no 500, and every answer is as documented.

`test_openapi_thorough.py` tries much more of them.
"""

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.app import ROUTES
from api.docs import write_openapi
from tests.api.stand_in import native, serving


def document(*, coverage: bool = False) -> schemathesis.BaseSchema:
    # As it is served: its parts are then what JSON knows, lists and not tuples.
    served = json.loads(write_openapi(ROUTES, release="test"))
    schema = schemathesis.openapi.from_dict(served)
    schema.config.phases.coverage.enabled = coverage
    return schema


quick = document()
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread of its own, since these tests are not coroutines."""
    urls: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving() as server:
            await server.call("POST", "/v1/jobs", native("there"))
            urls.append(server.url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    yield urls[0]
    done.set()
    thread.join()


def check(case: schemathesis.Case, url: str) -> None:
    # A schema cannot express whether a job makes sense, a cursor was given out here, a span of time
    # ends after it begins, or one parameter of a query excludes another.
    query = case.query or {}
    spans, instants = query.keys() & {"from", "to", "last_s"}, query.keys() & {"at", "position"}
    is_more = case.operation.body or isinstance(query.get("after"), str)
    is_more = is_more or bool(spans) or len(instants) > 1
    excluded = [positive_data_acceptance] if is_more else []
    case.call_and_validate(base_url=url, excluded_checks=excluded)


@quick.parametrize()
@settings(max_examples=10, derandomize=True, suppress_health_check=CHECKS)
def test_made_up_requests_get_documented_answers(case: schemathesis.Case, url: str) -> None:
    check(case, url)
