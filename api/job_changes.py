"""What people may do to a job: suspend, resume, cancel, scale, amend, delete."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.access import ACTOR
from api.control import CONTROL
from api.headers import HEADERS
from api.idempotency import HEADER, check_key, command_id, key_reused
from api.jobs import named
from api.routes import NoQuery, Route, answer_bytes, encode, route
from api.wire import BODIES, BODY_PROBLEMS, convert
from controlplane import commands as c
from controlplane.errors import Rejected
from controlplane.image import Receipt
from controlplane.job import Job
from controlplane.kinds.checking import BILLION, SECONDS_MAX
from controlplane.kinds.native import NativeSpec
from controlplane.model import CleanPods
from controlplane.queries import job_detail
from controlplane.views import JobDetail
from controlplane.world import World

JobRequest = c.SuspendJob | c.ResumeJob | c.CancelJob | c.ScaleJob | c.AmendJob | c.DeleteJob


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """How many replicas one role is to have."""

    role: Annotated[str, Meta(min_length=1, max_length=63)]
    replicas: Annotated[int, Meta(ge=0, le=10_000)]


_SECONDS = Meta(ge=0, le=SECONDS_MAX)


class Amendment(Struct, frozen=True, forbid_unknown_fields=True):
    """What may change in the life of a job; what is not named stays, and null means none."""

    ttl_s: Annotated[float, _SECONDS] | UnsetType | None = UNSET
    active_deadline_s: Annotated[float, _SECONDS] | UnsetType | None = UNSET
    restart_limit: Annotated[int, Meta(ge=0, le=BILLION)] | UnsetType | None = UNSET
    clean: CleanPods | UnsetType = UNSET


# What else a job has; how some of it is changed is said to who tries it here.
FIXED = (frozenset(NativeSpec.__struct_fields__) | {"replicas", "spec"}) - set(
    Amendment.__struct_fields__
)
OTHERWISE = {
    "replicas": "POST .../scale changes it",
    "roles": "POST .../scale changes the replicas of a role, and nothing else of it can change",
    "suspend": "POST .../suspend and .../resume change it",
    "restart": "of it the limit can change, as restart_limit",
    "spec": "name the fields that are to change directly",
}


async def suspend_job(request: web.Request, query: NoQuery) -> web.Response:
    return await _change(request, c.SuspendJob(**_common(request)))


async def resume_job(request: web.Request, query: NoQuery) -> web.Response:
    return await _change(request, c.ResumeJob(**_common(request)))


async def cancel_job(request: web.Request, query: NoQuery) -> web.Response:
    return await _change(request, c.CancelJob(**_common(request)))


async def scale_job(request: web.Request, query: NoQuery) -> web.Response:
    scale = convert(await request.app[BODIES].document(request), Scale)
    command = c.ScaleJob(role=scale.role, replicas=scale.replicas, **_common(request))
    return await _change(request, command)


async def amend_job(request: web.Request, query: NoQuery) -> web.Response:
    document = await request.app[BODIES].document(request)
    fixed = sorted(FIXED & document.keys()) if isinstance(document, dict) else ()
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
        **_common(request),
    )
    return await _change(request, command)


async def delete_job(request: web.Request, query: NoQuery) -> web.Response:
    """202 while ranks of it are still to stop, 204 when nothing is left."""
    detail = await _carry_out(request, c.DeleteJob(**_common(request)))
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


async def _change(request: web.Request, command: JobRequest) -> web.Response:
    detail = await _carry_out(request, command)
    if detail is None:
        told = f"{command.namespace}/{command.name} has been removed since"
        raise Rejected("no_such_job", told)
    return answer_bytes(detail)


async def _carry_out(request: web.Request, command: JobRequest) -> bytes | None:
    """The job as it is then, as JSON; None if it is gone."""

    def view(world: World, receipt: Receipt) -> tuple[Receipt, Job | None]:
        by_name = world.job(command.namespace, command.name)
        return receipt, world.jobs.get(receipt.stream) if receipt.stream else by_name

    control = request.app[CONTROL]
    receipt, job = await control.submit_then(command, view)
    await check_key(request, control.log, command, receipt)
    if job is not None and (job.namespace, job.name) != (command.namespace, command.name):
        raise key_reused()
    return None if job is None else encode(job_detail(job))


_JOB = "/v1/jobs/{namespace}/{name}"
_CHANGE = (
    "no_such_job",
    "already_finished",
    "quarantined",
    "platform_error",
    "idempotency_key_reused",
)

ROUTES: tuple[Route, ...] = (
    route(
        "PATCH", _JOB, amend_job, "Change the limits of a job: what is named; the rest stays",
        query=NoQuery, body=Amendment, answers={200: JobDetail},
        problems=("invalid_body", "invalid_job", "cannot_change", *_CHANGE, *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "DELETE", _JOB, delete_job, "Cancel a job if need be, and forget it when nothing is left",
        query=NoQuery, answers={202: JobDetail, 204: None}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/suspend", suspend_job, "Stop a job and keep it from starting",
        query=NoQuery, answers={200: JobDetail}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/resume", resume_job, "Let a suspended job queue again",
        query=NoQuery, answers={200: JobDetail}, problems=("not_suspended", *_CHANGE),
        headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/cancel", cancel_job, "End a job for good",
        query=NoQuery, answers={200: JobDetail}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_JOB}/scale", scale_job, "Give a role another number of replicas",
        query=NoQuery, body=Scale, answers={200: JobDetail},
        problems=("invalid_body", "unknown_role", "invalid_job", "can_never_fit", *_CHANGE, *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
