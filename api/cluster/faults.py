"""Faults of nodes over HTTP, for demonstrations on a simulated cluster.

A fault is recorded as an event before it begins, so that a restart, a replay and a fork repeat it.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from api.access import ACTOR
from api.cluster.about import ABOUT
from api.engine.engine_client import ENGINE
from api.jobs.jobs import CLUSTER
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.idempotency import HEADER, check_key, command_id
from api.requests.instants import SECONDS_MAX
from api.routes import NoQuery, Route, answer, route
from controlplane.event_messages import fault_text
from controlplane.model.commands import InjectFault
from controlplane.model.errors import Rejected
from controlplane.model.events import FaultInjected, Recorded
from controlplane.model.faults import NOTICE_S, NodeFaultKind, NodeFaultSpec
from controlplane.ports import Cluster, InjectsFaults
from controlplane.queries.views import FaultAccepted
from controlplane.state.image import Receipt
from controlplane.state.world import World

# The real time that the log gets to store a fault before it begins.
DELAY_S = 0.25


class FaultRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A fault to bring about; times are seconds of the cluster's clock.

    `crash`, `maintenance` and `spot_reclaim` take the node down; `slow`, `link` and `storage` leave
    `factor` of its speed. Without `duration_s` it is never repaired.
    """

    kind: NodeFaultKind = NodeFaultKind.CRASH
    duration_s: Annotated[float, Meta(gt=0, le=SECONDS_MAX)] | None = None
    factor: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    notice_s: Annotated[float, Meta(ge=0, le=86_400)] = NOTICE_S


async def inject_fault(request: web.Request, query: NoQuery) -> web.Response:
    asked = convert(await request.app[BODIES].document(request), FaultRequest)
    about = request.app[ABOUT]
    if not isinstance(request.app[CLUSTER], InjectsFaults):
        kind = about.kind or "real"
        raise Rejected(
            "faults_not_possible",
            f"this cluster is {kind}; only a simulated one (`muster up --cluster sim`) can be made "
            "to fail",
        )
    command = InjectFault(
        id=command_id(request),
        actor=request[ACTOR],
        node=request.match_info["name"],
        fault=fault_of(asked),
        delay_s=DELAY_S * max(1.0, about.speed),
    )

    def view(world: World, receipt: Receipt) -> tuple[Receipt, float]:
        return receipt, world.at

    engine_client = request.app[ENGINE]
    receipt, at = await engine_client.submit_then(command, view)
    await check_key(request, engine_client.log, command, receipt)
    return answer(
        FaultAccepted(
            node=command.node,
            kind=asked.kind,
            begins_at=at + command.delay_s,
            position=receipt.position,
            message=fault_text(command.fault),
        ),
        status=202,
    )


def fault_of(asked: FaultRequest) -> NodeFaultSpec:
    """Return the fault without the fields that its kind does not use."""
    return NodeFaultSpec(
        asked.kind,
        asked.duration_s,
        factor=1.0 if asked.kind.takes_node else asked.factor,
        notice_s=asked.notice_s if asked.kind is NodeFaultKind.SPOT_RECLAIM else 0.0,
    )


def injector(cluster: Cluster) -> Callable[[Sequence[Recorded], World], None]:
    """Return a listener that passes recorded faults on to a cluster that can fail."""

    def inject(batch: Sequence[Recorded], world: World) -> None:
        if isinstance(cluster, InjectsFaults):
            for recorded in batch:
                if isinstance(recorded.event, FaultInjected):
                    cluster.inject(recorded)

    return inject


ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/nodes/{name}/faults", inject_fault,
        "Make a node of a simulated cluster fail, for a demonstration",
        query=NoQuery, body=FaultRequest, answers={202: FaultAccepted},
        problems=("no_such_node", "faults_not_possible", "invalid_body", "idempotency_key_reused",
                  *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
