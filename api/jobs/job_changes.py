"""Changes to a job over HTTP: suspend, resume, cancel, scale, amend, delete."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.access import ACTOR
from api.engine.engine_client import ENGINE
from api.jobs.jobs import detail_of, named
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.headers import HEADERS
from api.requests.idempotency import HEADER, check_key, command_id, key_reused
from api.routes import Route, answer_bytes, route
from api.studies.previews import ChangeQuery, previewed
from controlplane.kinds import hints
from controlplane.kinds.manifest.checking import BILLION, SECONDS_MAX
from controlplane.kinds.native import NativeSpec
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from controlplane.model.owners import parse_array
from controlplane.model.spec import CleanPods
from controlplane.queries.views import JobDetail
from controlplane.state.image import Receipt
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named
from studies.forecast.views import Preview

JobRequest = (
    c.SuspendJob
    | c.ResumeJob
    | c.CancelJob
    | c.ScaleJob
    | c.AmendJob
    | c.DeleteJob
    | c.RetryMembers
)


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """The new number of replicas of one role."""

    role: Annotated[str, Meta(min_length=1, max_length=63)]
    replicas: Annotated[int, Meta(ge=0, le=10_000)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """The indices of an array to run once more, as 7,9-12.

    Empty means all that failed or were cancelled.
    """

    indices: Annotated[str, Meta(max_length=100_000)] = ""


_SECONDS = Meta(ge=0, le=SECONDS_MAX)


class Amendment(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a job that may change during its life.

    A field that is not given stays as it is; null removes the limit. The queue and the priority
    can change while the job waits.
    """

    ttl_s: Annotated[float, _SECONDS] | UnsetType | None = UNSET
    active_deadline_s: Annotated[float, _SECONDS] | UnsetType | None = UNSET
    restart_limit: Annotated[int, Meta(ge=0, le=BILLION)] | UnsetType | None = UNSET
    clean: CleanPods | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=-BILLION, le=BILLION)] | UnsetType = UNSET
    queue: Annotated[str, Meta(min_length=1, max_length=253)] | UnsetType = UNSET


def fixed_fields() -> set[str]:
    """Return the other fields of a job; a request to amend one is refused.

    `OTHERWISE` has a hint where another command changes the field.
    """
    own_hints = {schema.name for schema in hints.schemas()}
    known = {*NativeSpec.__struct_fields__, *own_hints, "replicas", "spec"}
    return known - set(Amendment.__struct_fields__)


OTHERWISE = {
    "replicas": "POST .../scale changes it",
    "roles": "POST .../scale changes the replicas of a role, and nothing else of it can change",
    "suspend": "POST .../suspend and .../resume change it",
    "restart": "of it the limit can change, as restart_limit",
    "spec": "name the fields that are to change directly",
}


async def suspend_job(request: web.Request, query: ChangeQuery) -> web.Response:
    return await _change(request, query, c.SuspendJob(**_common(request)))


async def resume_job(request: web.Request, query: ChangeQuery) -> web.Response:
    return await _change(request, query, c.ResumeJob(**_common(request)))


async def cancel_job(request: web.Request, query: ChangeQuery) -> web.Response:
    return await _change(request, query, c.CancelJob(**_common(request)))


async def scale_job(request: web.Request, query: ChangeQuery) -> web.Response:
    scale = convert(await request.app[BODIES].document(request), Scale)
    command = c.ScaleJob(role=scale.role, replicas=scale.replicas, **_common(request))
    return await _change(request, query, command)


async def retry_members(request: web.Request, query: ChangeQuery) -> web.Response:
    retry = convert(await request.app[BODIES].document(request), Retry)
    try:
        indices = parse_array(retry.indices)[0] if retry.indices else ()
    except ValueError as error:
        raise Rejected("invalid_body", f"indices: {error}", field="indices") from None
    return await _change(request, query, c.RetryMembers(indices=indices, **_common(request)))


async def amend_job(request: web.Request, query: ChangeQuery) -> web.Response:
    document = await request.app[BODIES].document(request)
    fixed = sorted(fixed_fields() & document.keys()) if isinstance(document, dict) else ()
    for field in fixed:
        what = OTHERWISE.get(field, "it stays as it was submitted; submit another job")
        changeable = ", ".join(Amendment.__struct_fields__)
        raise Rejected("cannot_change", f"{field}: {what}. Here: {changeable}", field=field)
    asked = convert(document, Amendment)
    command = c.AmendJob(
        ttl_s=asked.ttl_s,
        active_deadline_s=asked.active_deadline_s,
        restart_limit=asked.restart_limit,
        clean=asked.clean,
        priority=asked.priority,
        queue=asked.queue,
        **_common(request),
    )
    return await _change(request, query, command)


async def delete_job(request: web.Request, query: ChangeQuery) -> web.Response:
    """Answer 202 while ranks of the job still have to stop, 204 when nothing is left."""
    command = c.DeleteJob(**_common(request))
    if query.dry_run:
        return await previewed(request, command)
    detail = await _carry_out(request, command)
    return (
        web.Response(status=204, headers=HEADERS)
        if detail is None
        else answer_bytes(detail, status=202)
    )


def _common(request: web.Request) -> dict[str, str]:
    namespace, name = named(request)
    return {
        "id": command_id(request),
        "actor": request[ACTOR],
        "namespace": namespace,
        "name": name,
    }


async def _change(request: web.Request, query: ChangeQuery, command: JobRequest) -> web.Response:
    if query.dry_run:
        return await previewed(request, command)
    detail = await _carry_out(request, command)
    if detail is None:
        message = f"{command.namespace}/{command.name} has been removed since"
        raise Rejected("no_such_job", message)
    return answer_bytes(detail)


async def _carry_out(request: web.Request, command: JobRequest) -> bytes | None:
    """Submit `command` and return the job after it as JSON; None if the job is gone."""

    def view(world: World, receipt: Receipt) -> tuple[Receipt, Job | Owner | None, bytes | None]:
        changed = world.jobs.get(receipt.stream) or world.owners.get(receipt.stream)
        if not receipt.stream:
            names = (command.namespace, command.name)
            changed = world.job(*names) or owner_named(world, *names)
        return receipt, changed, None if changed is None else detail_of(world, changed.id)

    engine_client = request.app[ENGINE]
    receipt, changed, detail = await engine_client.submit_then(command, view)
    await check_key(request, engine_client.log, command, receipt)
    if changed is not None and (changed.namespace, changed.name) != (
        command.namespace,
        command.name,
    ):
        raise key_reused()
    return detail


_JOB = "/v1/jobs/{namespace}/{name}"
_CHANGE = (
    "no_such_job",
    "already_finished",
    "quarantined",
    "owned_job",
    "not_for_arrays",
    "platform_error",
    "idempotency_key_reused",
)

ROUTES: tuple[Route, ...] = (
    route(
        "PATCH", _JOB, amend_job, "Change the limits of a job, or its queue and priority while it waits",
        query=ChangeQuery, body=Amendment, answers={200: (JobDetail, Preview)},
        problems=("invalid_body", "invalid_job", "cannot_change", "unknown_queue", *_CHANGE, *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "DELETE", _JOB, delete_job, "Cancel a job if need be, and forget it when nothing is left",
        query=ChangeQuery, answers={202: JobDetail, 204: None, 200: Preview}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/suspend", suspend_job, "Stop a job and keep it from starting",
        query=ChangeQuery, answers={200: (JobDetail, Preview)}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/resume", resume_job, "Let a suspended job queue again",
        query=ChangeQuery, answers={200: (JobDetail, Preview)}, problems=("not_suspended", "owner_suspended", *_CHANGE),
        headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/cancel", cancel_job, "End a job for good",
        query=ChangeQuery, answers={200: (JobDetail, Preview)}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/retry", retry_members, "Run indices of an array once more",
        query=ChangeQuery, body=Retry, answers={200: (JobDetail, Preview)},
        problems=("invalid_body", "not_an_array", "no_such_index", "nothing_to_retry", *_CHANGE,
                  *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/scale", scale_job, "Give a role another number of replicas",
        query=ChangeQuery, body=Scale, answers={200: (JobDetail, Preview)},
        problems=("invalid_body", "unknown_role", "invalid_job", "can_never_fit", *_CHANGE, *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
