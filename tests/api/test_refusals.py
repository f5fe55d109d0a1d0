"""Bad requests: each gets its stable problem, and nothing of it reaches the log."""

import io
import json
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from api.problems import KINDS
from api.requests.body_lines import line_of
from tests.api.stand_in import Server, native, pytorch

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


class Bad(NamedTuple):
    case: str
    method: str
    path: str
    body: Any
    code: str
    headers: Mapping[str, str] = MappingProxyType({})


def post(case: str, body: Any, code: str, headers: dict[str, str] = JSON) -> Bad:
    return Bad(case, "POST", "/v1/jobs", body, code, headers)


def get(path: str, code: str) -> Bad:
    return Bad(path, "GET", path, None, code)


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The manifest with one field set, named by its path."""
    copy = deepcopy(manifest)
    *outer, last = path.split(".")
    here: Any = copy
    for step in outer:
        here = here[int(step)] if step.isdigit() else here[step]
    here[last] = value
    return copy


OK, TORCH = native("new"), pytorch("new")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{y}: &{y} [{','.join([f'*{x}'] * 9)}]\n" for x, y in zip("abcdefg", "bcdefgh", strict=True)
)

MANIFESTS = [
    post("not json", "{", "invalid_json"),
    post("empty", "", "invalid_json"),
    post("no mapping", "[]", "invalid_manifest"),
    post("a number", "1", "invalid_manifest"),
    post("no kind", {"apiVersion": "muster.dev/v1"}, "invalid_manifest"),
    post("kind is a number", {"apiVersion": "muster.dev/v1", "kind": 1}, "invalid_manifest"),
    post("unknown kind", {"apiVersion": "muster.dev/v1", "kind": "Pod"}, "unknown_kind"),
    post("unknown version", {**OK, "apiVersion": "muster.dev/v9"}, "unknown_kind"),
    post("unknown field", {**OK, "extra": 1}, "invalid_manifest"),
    post("unknown field inside", changed(OK, "spec.replica", 1), "invalid_manifest"),
    post("unknown pod field", changed(TORCH, "spec.pytorchReplicaSpecs.Worker.template.spec.x", 1),
         "invalid_manifest"),
    post("text for a number", changed(OK, "spec.roles.0.replicas", "2"), "invalid_manifest"),
    post("fraction", changed(OK, "spec.roles.0.gpus", 1.5), "invalid_manifest"),
    post("list for a map", changed(OK, "metadata", []), "invalid_manifest"),
    post("no name", changed(OK, "metadata", {}), "invalid_manifest"),
    post("no roles", changed(OK, "spec.roles", []), "invalid_manifest"),
    post("unknown role", changed(TORCH, "spec.pytorchReplicaSpecs", {"PS": {}}), "invalid_manifest"),
    post("half a GPU", changed(TORCH, "spec.pytorchReplicaSpecs.Worker.template.spec.containers.0"
         ".resources.limits", {"nvidia.com/gpu": "0.5"}), "invalid_manifest"),
    post("upper-case name", native("Train"), "invalid_manifest"),
    post("name with a dot", native("a.b"), "invalid_manifest"),
    post("name with a blank", native("a b"), "invalid_manifest"),
    post("empty name", native(""), "invalid_manifest"),
    post("name too long", native("x" * 64), "invalid_manifest"),
    post("name that breaks lines", native("a\nb"), "invalid_manifest"),
    post("bad namespace", changed(OK, "metadata.namespace", "../etc"), "invalid_manifest"),
    post("negative replicas", native("new", replicas=-1), "invalid_manifest"),
    post("no replicas", native("new", replicas=0), "invalid_manifest"),
    post("too many ranks", native("new", replicas=10_001), "invalid_manifest"),
    post("negative gpus", native("new", gpus=-1), "invalid_manifest"),
    post("negative time", native("new", ttl_s=-1), "invalid_manifest"),
    post("huge priority", native("new", priority=10**10), "invalid_manifest"),
    post("unknown queue", native("new", queue="nowhere"), "unknown_queue"),
    post("no node is so large", native("new", gpus=9), "can_never_fit"),
    post("the cluster is too small", native("new", replicas=3, gpus=8), "can_never_fit"),
    post("name taken", native("there"), "name_taken"),
    post("NaN", '{"apiVersion": NaN}', "not_finite"),
    post("infinity by exponent", '{"apiVersion": 1e999}', "not_finite"),
    post("duplicate key", '{"kind": "Job", "kind": "Job"}', "duplicate_key"),
    post("deep", "[" * 10_000, "too_deep"),
    post("many parts", "[" + "[]," * 30_000 + "[]]", "too_complex"),
    post("deep in a template", json.dumps(OK)[:-1] + ', "x": ' + "[" * 70 + "]" * 70 + "}",
         "too_deep"),
    post("half a character", '{"kind": "\\ud800"}', "invalid_utf8"),
    post("not utf-8", b'{"kind": "\xff"}', "invalid_utf8"),
    post("a number of 70 bits", json.dumps(native("new", priority=2**70)), "not_finite"),
    post("a number of 70 bits in an annotation",
         changed(TORCH, "metadata.annotations",
                 {"sim.muster.dev/failing-attempts": str(2**70)}), "invalid_manifest"),
    post("huge body", b"[" + b" " * (1 << 20) + b"]", "body_too_large"),
    post("yaml bomb", BOMB, "yaml_alias", YAML),
    post("yaml alias", "a: &x 1\nb: *x", "yaml_alias", YAML),
    post("yaml tag", "!!python/object/apply:os.system [id]", "yaml_tag", YAML),
    post("yaml documents", yaml.safe_dump_all([OK, native("more")]), "several_documents", YAML),
    post("yaml duplicate", "kind: Job\nkind: Job", "duplicate_key", YAML),
    post("yaml broken", "a: [", "invalid_yaml", YAML),
    post("yaml empty", "", "invalid_yaml", YAML),
    post("yaml deep", "- " * 100_000, "too_deep", YAML),
    post("yaml not a mapping", "just text", "invalid_manifest", YAML),
    post("a form", "a=b", "unsupported_media_type",
         {"Content-Type": "application/x-www-form-urlencoded"}),
    post("plain text", json.dumps(OK), "unsupported_media_type", {"Content-Type": "text/plain"}),
    post("no type", json.dumps(OK).encode(), "unsupported_media_type", {}),
    post("another charset", json.dumps(OK), "unsupported_media_type",
         {"Content-Type": "application/json; charset=utf-16"}),
    post("compressed", b"\x1f\x8b", "unsupported_media_type",
         {**JSON, "Content-Encoding": "gzip"}),
    Bad("plan what?", "POST", "/v1/jobs?plan=perhaps", OK, "invalid_parameter", JSON),
    Bad("empty key", "POST", "/v1/jobs", OK, "invalid_parameter", {**JSON, "Idempotency-Key": ""}),
    Bad("long key", "POST", "/v1/jobs", OK, "invalid_parameter",
        {**JSON, "Idempotency-Key": "k" * 201}),
    Bad("odd key", "POST", "/v1/jobs", OK, "invalid_parameter",
        {**JSON, "Idempotency-Key": "k\u00e9y"}),
]  # fmt: skip

REQUESTS = [
    get("/v1/jobs?limit=0", "invalid_parameter"),
    get("/v1/jobs?limit=-1", "invalid_parameter"),
    get("/v1/jobs?limit=1001", "invalid_parameter"),
    get("/v1/jobs?limit=99999999999999999999999", "invalid_parameter"),
    get("/v1/jobs?limit=many", "invalid_parameter"),
    get("/v1/jobs?limit=1&limit=2", "invalid_parameter"),
    get("/v1/jobs?phase=Sleeping", "invalid_parameter"),
    get("/v1/jobs?order=random", "invalid_parameter"),
    get("/v1/jobs?color=red", "invalid_parameter"),
    get("/v1/jobs?after=!!!", "bad_cursor"),
    get("/v1/jobs?after=bnVsbA", "bad_cursor"),
    get("/v1/jobs?after=%C3%A9", "bad_cursor"),
    get("/v1/jobs?after=" + "A" * 300, "invalid_parameter"),
    get("/v1/nodes?after=WzFd", "bad_cursor"),
    get("/v1/queues?after=MQ", "bad_cursor"),
    get("/v1/jobs/default/missing", "no_such_job"),
    get("/v1/jobs/default/missing/why", "no_such_job"),
    get("/v1/jobs/default/missing/events", "no_such_job"),
    get("/v1/jobs/default/missing/logs", "no_such_job"),
    get("/v1/jobs/default/there/logs?rank=1", "no_such_rank"),
    get("/v1/jobs/default/there/logs?rank=-1", "invalid_parameter"),
    get("/v1/jobs/default/there/logs?tail=0", "invalid_parameter"),
    get("/v1/jobs/default/there/logs?tail=1000000", "invalid_parameter"),
    get("/v1/jobs/default/there?x=1", "invalid_parameter"),
    get("/v1/nodes/nowhere", "no_such_node"),
    get("/v1/queues/nowhere", "no_such_queue"),
    get("/v1/events?after=-1", "invalid_parameter"),
    get("/v1/events?after=first", "invalid_parameter"),
    get("/v1/events?after=1e3", "no_such_position"),
    get("/v1/events?after=9223372036854775807", "no_such_position"),
    get("/v1/events?after=9223372036854775808", "invalid_parameter"),
    get("/v1/state?position=-1", "invalid_parameter"),
    get("/v1/state?position=9999", "no_such_position"),
    get("/v1/state?at=nan", "invalid_parameter"),
    get("/v1/state?at=yesterday", "invalid_parameter"),
    get("/v1/state?at=2024-01-01T00:00:00", "invalid_parameter"),
    get("/v2/jobs", "no_such_route"),
    get("/v1/jobs/", "no_such_route"),
    get("/v1/jobs/default/there/cancel", "method_not_allowed"),
    Bad("id of no event", "GET", "/v1/events", None, "invalid_parameter", {"Last-Event-ID": "x"}),
    Bad("patch", "PATCH", "/v1/jobs/default/there/cancel", None, "method_not_allowed"),
    Bad("amend missing", "PATCH", "/v1/jobs/default/missing", {"ttl_s": 1}, "no_such_job", JSON),
    Bad("amend the queue", "PATCH", "/v1/jobs/default/there", {"queue": "a"}, "cannot_change", JSON),
    Bad("amend replicas", "PATCH", "/v1/jobs/default/there", {"replicas": 2}, "cannot_change", JSON),
    Bad("amend nonsense", "PATCH", "/v1/jobs/default/there", {"what": 2}, "invalid_body", JSON),
    Bad("amend below zero", "PATCH", "/v1/jobs/default/there", {"ttl_s": -2}, "invalid_body", JSON),
    Bad("amend with a list", "PATCH", "/v1/jobs/default/there", [], "invalid_body", JSON),
    Bad("made-up method", "FROB", "/v1/jobs", None, "bad_request"),
    Bad("cancel missing", "POST", "/v1/jobs/default/missing/cancel", None, "no_such_job"),
    Bad("delete missing", "DELETE", "/v1/jobs/default/missing", None, "no_such_job"),
    Bad("resume what runs", "POST", "/v1/jobs/default/there/resume", None, "not_suspended"),
    Bad("cancel the finished", "POST", "/v1/jobs/default/done/cancel", None, "already_finished"),
    Bad("suspend the finished", "POST", "/v1/jobs/default/done/suspend", None, "already_finished"),
    Bad("scale the finished", "POST", "/v1/jobs/default/done/scale",
        {"role": "worker", "replicas": 2}, "already_finished", JSON),
    Bad("scale no role", "POST", "/v1/jobs/default/there/scale",
        {"role": "chef", "replicas": 2}, "unknown_role", JSON),
    Bad("scale below zero", "POST", "/v1/jobs/default/there/scale",
        {"role": "worker", "replicas": -2}, "invalid_body", JSON),
    Bad("scale to nothing", "POST", "/v1/jobs/default/there/scale",
        {"role": "worker", "replicas": 0}, "invalid_job", JSON),
    Bad("scale beyond the cluster", "POST", "/v1/jobs/default/there/scale",
        {"role": "worker", "replicas": 100}, "can_never_fit", JSON),
    Bad("scale without a body", "POST", "/v1/jobs/default/there/scale", None,
        "unsupported_media_type"),
    Bad("scale with more", "POST", "/v1/jobs/default/there/scale",
        {"role": "worker", "replicas": 1, "x": 1}, "invalid_body", JSON),
    Bad("cordon nothing", "POST", "/v1/nodes/nowhere/cordon", None, "no_such_node"),
    Bad("bad queue name", "PUT", "/v1/queues/A_B", {"gpus_max": 1}, "invalid_queue", JSON),
    Bad("negative queue", "PUT", "/v1/queues/q", {"gpus_max": -1}, "invalid_body", JSON),
    Bad("queue with more", "PUT", "/v1/queues/q", {"gpus": 1}, "invalid_body", JSON),
    Bad("queue as a list", "PUT", "/v1/queues/q", [], "invalid_body", JSON),
]  # fmt: skip


@pytest.fixture
async def busy_server(server: Server) -> Server:
    """One job runs (`there`) and one has finished (`done`)."""
    await server.call("POST", "/v1/jobs", native("there"))
    _, done = await server.call("POST", "/v1/jobs", native("done"))
    await server.settled()
    server.cluster.finish(done["job"]["id"])
    await server.settled()
    return server


@pytest.mark.parametrize(
    "bad", MANIFESTS + REQUESTS, ids=lambda bad: f"{bad.method} {bad.case}"[:60]
)
async def test_a_bad_request_gets_its_problem_and_leaves_no_trace(
    busy_server: Server, bad: Bad
) -> None:
    server = busy_server
    before = await server.log.head()
    body = bad.body if isinstance(bad.body, str | bytes | None) else json.dumps(bad.body)
    if isinstance(body, bytes):
        # aiohttp's client warns of large bodies that are not a file.
        body = io.BytesIO(body)
    skipped = ["Content-Type"] if "Content-Type" not in bad.headers else []
    async with server.session.request(
        bad.method, server.url + bad.path, data=body, headers=bad.headers, skip_auto_headers=skipped
    ) as answer:
        assert answer.content_type == "application/problem+json"
        problem = await answer.json(content_type=None)
    assert (problem["code"], problem["status"]) == (bad.code, KINDS[bad.code].status)
    assert answer.status == problem["status"]
    assert problem["type"] == f"/docs#{bad.code}"
    assert problem["title"]
    assert problem["detail"]
    await server.settled()
    assert await server.log.head() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (changed(OK, "spec.roles.0.replicas", "2"), "spec.roles[0].replicas"),
        (native("Train"), "metadata.name"),
        (native("new", queue="nowhere"), "spec.queue"),
    ],
)
async def test_a_problem_names_the_field(server: Server, body: object, field: str) -> None:
    _, problem = await server.call("POST", "/v1/jobs", body)
    assert problem["field"] == field


async def test_an_unexpected_error_reveals_nothing_but_an_id(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("the secret reason")

    monkeypatch.setattr("api.jobs.jobs.job_page", fails)
    status, problem = await server.call("GET", "/v1/jobs")
    assert (status, problem["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(problem)
    assert problem["instance"] in caplog.text
    assert "the secret reason" in caplog.text


async def test_a_problem_that_is_long_is_cut(server: Server) -> None:
    _, problem = await server.call("POST", "/v1/jobs", native("x" * 100_000))
    assert len(problem["detail"]) <= 1000


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        (
            "PUT",
            "/v1/queues/q",
            {"discipline": "lifo"},
            ["discipline: ", "fifo, fit, sjf"],
        ),
        (
            "PUT",
            "/v1/queues/q",
            {"preempt": {"reclaim": "all"}},
            ["preempt.reclaim: ", "never, lower, any"],
        ),
        ("PUT", "/v1/queues/q", {"preempt": {"take": 1}}, ["preempt: ", "within_queue, reclaim"]),
        ("PUT", "/v1/queues/q", {"gpu_max": 1}, ["`gpu_max`; known: ", "gpus_max"]),
        (
            "PUT",
            "/v1/queues/q",
            {"flavors": [{"name": "a", "min": 1}]},
            ["flavors[0]: ", "nominal"],
        ),
        ("PUT", "/v1/policy", {"model": "fair"}, ["model: ", "quota_classic, quota_fair"]),
        ("GET", "/v1/jobs?phase=running", None, ["phase[0]: ", "Queued, Starting, Running"]),
        ("GET", "/v1/jobs?status=x", None, ["`status`; known: ", "phase"]),
        ("GET", "/v1/jobs?order=down", None, ["order: ", "oldest, newest"]),
    ],
)
async def test_a_word_that_is_not_known_is_answered_with_those_that_are(
    server: Server, method: str, path: str, body: object, words: list[str]
) -> None:
    status, problem = await server.call(method, path, body)
    assert status in (400, 422)
    for part in words:
        assert part in problem["detail"], problem


MANIFEST = """apiVersion: muster.dev/v1
kind: Job
metadata:
  name: train
  labels: {app.example/part: a}
spec:
  roles:
    - name: worker
      replicas: 2
    - name: helper
      replicas: -3
  priority: high
"""


async def refused(server: Server, body: str, kind: str = "application/yaml") -> dict[str, Any]:
    headers = {"Content-Type": kind}
    async with server.session.post(f"{server.url}/v1/jobs", data=body, headers=headers) as answer:
        assert answer.status >= 400
        problem: dict[str, Any] = await answer.json(content_type=None)
        return problem


async def test_a_problem_of_a_manifest_names_its_line(server: Server) -> None:
    problem = await refused(server, MANIFEST)
    assert (problem["field"], problem["line"]) == ("spec.priority", 12)
    problem = await refused(server, MANIFEST.replace("priority: high", "priority: 1"))
    lines = [problem["line"], *(error["line"] for error in problem.get("errors", []))]
    assert 11 in lines
    problem = await refused(server, "kind: Job\nmetadata:\n  name: [a\n")
    assert (problem["code"], problem["line"]) == ("invalid_yaml", 4)
    problem = await refused(server, '{"kind": "Job",\n "apiVersion": }', "application/json")
    assert (problem["code"], problem["line"]) == ("invalid_json", 2)


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("kind", 2),
        ("metadata.name", 4),
        ("metadata.labels.app.example/part", 5),
        ("spec.roles[1].replicas", 11),
        ("spec.roles[1].gpus", 10),
        ("spec.roles[helper].replicas", 11),
        ("spec.roles[none].replicas", 7),
        ("spec.roles[...].replicas", 7),
        ("spec.roles[7]", 7),
        ("spec.none.such", 6),
        ("nothing", 1),
    ],
)
def test_a_field_is_at_its_line_or_at_that_of_its_parent(field: str, line: int) -> None:
    assert line_of(MANIFEST.encode(), field) == line


def test_a_body_that_cannot_be_read_has_no_lines() -> None:
    assert line_of(b"a: [", "a") is None
    assert line_of(b"\xff", "a") is None
    assert line_of(b"", "a") is None
    assert line_of(b"a: 1\n" * 100_000, "a") is None
