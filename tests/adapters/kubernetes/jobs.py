"""Jobs in any state, and the pods that may exist for them."""

from typing import Any

from adapters.kubernetes.reconcile.plan import Plan, Ref
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Owner, Site
from controlplane.kinds.kind import GangContext, Kind, RankEnvironment, Service
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.spec import (
    CleanPods,
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
)
from tests.gangs import on, placed, then


def is_empty(plan: Plan) -> bool:
    """Whether there is nothing to request; a plan with only conflicts is empty."""
    return not (plan.create or plan.delete or plan.patch)


SPEAKER = {"name": "main", "image": "example.com/train:1"}
SIDECAR = {"name": "sidecar", "image": "example.com/log:1"}


def role(name: str = "Worker", replicas: int = 2, **more: Any) -> Role:
    template = {"spec": {"containers": [SPEAKER, SIDECAR]}}
    return Role(
        **{"name": name, "replicas": replicas, "container": "main", "template": template} | more
    )


def spec(*roles: Role, clean: CleanPods = CleanPods.NONE, **more: Any) -> JobSpec:
    return JobSpec(
        roles=roles or (role(restart=RestartRule.ON_FAILURE),),
        done_when=DoneWhen((roles or (role(),))[0].name),
        restart=RestartPolicy(scope=RestartScope.RANK),
        clean=clean,
        **more,
    )


def environment_of(gang: GangContext, rank: int) -> RankEnvironment:
    return RankEnvironment(
        name=f"{gang.name}-{gang.spec.rank_name(rank)}",
        labels={"rank": str(rank)},
        env={"RANK": str(rank)},
    )


def services(gang: GangContext) -> list[Service]:
    shared = Service(name=gang.name, selector={"job": gang.name})
    own = [
        Service(name=f"{gang.name}-{gang.spec.rank_name(i)}", selector={"rank": str(i)})
        for i in range(gang.spec.size)
    ]
    return [shared, *own]


PLAIN = Kind(
    name="Job",
    forms=(),
    environments=lambda gang: lambda rank: environment_of(gang, rank),
    services=services,
)


def job(spec_: JobSpec | None = None) -> Job:
    """A job that was given its place, one node a rank."""
    wanted = spec_ or spec()
    return placed(on(*(f"node-{i}" for i in range(wanted.size))), wanted)


def rendering(job: Job, site: Site | None = None, owner: Owner | None = None) -> Rendering:
    return Rendering(job, PLAIN, site, owner)


def by_ref(*documents: dict[str, Any]) -> dict[Ref, dict[str, Any]]:
    return {Ref(each["kind"], each["metadata"]["name"]): each for each in documents}


def seen(document: dict[str, Any], phase: str, **status: Any) -> dict[str, Any]:
    return {**document, "status": {"phase": phase, **status}}


def ended(code: int, reason: str = "", name: str = "main", message: str = "") -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "message": message}
    return {"name": name, "state": {"terminated": state}}


__all__ = ["e", "then"]
