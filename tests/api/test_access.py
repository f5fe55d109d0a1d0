"""Who may ask: every route, with no token, a wrong one and a right one."""

import json
import logging
from collections.abc import AsyncIterator

import pytest

from api.access import Access, Token, is_loopback, token_hash
from api.app import ROUTES
from api.routes import Route
from tests.api.stand_in import Server, native, serving

SECRET = "mus_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
OTHER = "mus_another-secret-that-belongs-to-no-account000"
TOKENS = (Token("ann", token_hash(SECRET)), Token("bob", token_hash(OTHER)))
OPEN = {
    "/",
    "/static/{file}",
    "/static/{folder}/{file}",
    "/docs",
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/leaderz",
}


@pytest.fixture
async def public() -> AsyncIterator[Server]:
    """A server as if it listened on every address."""
    async with serving(access=Access(TOKENS, bound_to="0.0.0.0")) as server:
        yield server


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def address(route: Route) -> str:
    file = "shell.css" if "{folder}" in route.path else "main.js"
    return route.path.format(
        namespace="default", name="missing", id="missing", rank=0, folder="styles", file=file
    )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(""),
        bearer(SECRET + "x"),
        bearer(SECRET[:-1]),
        {"Authorization": SECRET},
        {"Authorization": f"Basic {SECRET}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer \u00fc"},
    ],
    ids=str,
)
async def test_without_a_right_token_only_the_open_routes_answer(
    public: Server, route: Route, headers: dict[str, str]
) -> None:
    before = await public.log.head()
    status, problem = await public.call(route.method, address(route), headers=headers)
    if route.path in OPEN:
        assert status == 200
    else:
        assert (status, problem["code"]) == (401, "token_needed")
    assert await public.log.head() == before


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_with_a_right_token_every_route_answers(public: Server, route: Route) -> None:
    ask = public.session.request(
        route.method, f"{public.url}{address(route)}", headers=bearer(SECRET)
    )
    async with ask as answer:
        assert answer.status not in (401, 403, 405, 500)


async def test_a_refusal_explains_how_to_ask(public: Server) -> None:
    async with public.session.get(f"{public.url}/v1/jobs") as answer:
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_the_holder_of_the_token_is_the_actor(public: Server) -> None:
    await public.call("POST", "/v1/jobs", native("one"), headers=bearer(SECRET))
    await public.call("POST", "/v1/jobs", native("two"), headers=bearer(OTHER))
    _, page = await public.call("GET", "/v1/events", headers=bearer(SECRET))
    actors = [e["actor"] for e in page["items"] if e["type"] == "JobSubmitted"]
    assert actors == ["ann", "bob"]


async def test_the_same_key_of_two_actors_is_two_keys(public: Server) -> None:
    for secret, name in ((SECRET, "one"), (OTHER, "two")):
        headers = {**bearer(secret), "Idempotency-Key": "k"}
        status, _ = await public.call("POST", "/v1/jobs", native(name), headers=headers)
        assert status == 201


async def test_no_secret_reaches_the_logs(public: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    # `muster up` sets a level of its own, for the whole process.
    caplog.set_level(logging.DEBUG, logger="aiohttp.access")
    await public.call("GET", "/v1/jobs", headers=bearer(SECRET))
    await public.call("GET", "/v1/jobs", headers=bearer("not-" + SECRET))
    assert "GET /v1/jobs 200" in caplog.text
    assert "GET /v1/jobs 401" in caplog.text
    assert SECRET not in caplog.text
    page = await public.call("GET", "/v1/events", headers=bearer(SECRET))
    assert SECRET not in json.dumps(page)


async def test_a_local_server_without_tokens_asks_for_none_and_takes_no_wrong_one() -> None:
    async with serving(access=Access()) as server:
        assert (await server.call("GET", "/v1/jobs"))[0] == 200
        assert (await server.call("GET", "/v1/jobs", headers=bearer("wrong")))[0] == 401


async def test_a_local_server_with_tokens_asks_for_one() -> None:
    async with serving(access=Access(TOKENS)) as server:
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/metrics")):
            status, problem = await server.call(method, path)
            assert (status, problem["code"]) == (401, "token_needed")
        assert (await server.call("GET", "/v1/jobs", headers=bearer(SECRET)))[0] == 200
        assert (await server.call("GET", "/v1/jobs", headers=bearer("wrong")))[0] == 401
        assert (await server.call("GET", "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [
        ("localhost", True),
        ("localhost:8642", True),
        ("muster.localhost:1", True),
        ("127.0.0.1", True),
        ("127.1.2.3:80", True),
        ("[::1]:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8642", False),
        ("evil.example:127", False),
        ("0.0.0.0", False),
        ("[::1", False),
        ("", False),
    ],
)
async def test_a_local_server_is_asked_by_a_local_name(
    server: Server, host: str, is_taken: bool
) -> None:
    status, answer = await server.call("GET", "/v1/jobs", headers={"Host": host})
    if is_taken:
        assert status == 200
    else:
        assert (status, answer["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        ({}, True),
        ({"Origin": "SELF", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://localhost:1"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "none"}, True),
    ],
    ids=str,
)
async def test_a_page_of_another_site_changes_nothing(
    server: Server, headers: dict[str, str], is_taken: bool
) -> None:
    sent = {name: server.url if value == "SELF" else value for name, value in headers.items()}
    status, answer = await server.call("POST", "/v1/nodes/node-0/cordon", headers=sent)
    if is_taken:
        assert status == 200
    else:
        assert (status, answer["code"]) == (403, "cross_origin")
    assert (await server.call("GET", "/v1/nodes", headers=sent))[0] == 200


def test_a_public_server_without_tokens_is_not_made() -> None:
    with pytest.raises(ValueError, match="needs a token"):
        Access(bound_to="0.0.0.0")


@pytest.mark.parametrize("actor", ["", "a:b", "a b", "-a", "x" * 65, "a\n"])
def test_an_actor_has_a_plain_name(actor: str) -> None:
    with pytest.raises(ValueError, match="actor"):
        Token(actor, token_hash(SECRET))


def test_a_token_is_only_known_by_its_hash() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        Token("ann", SECRET.encode())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("muster.example", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
