"""Kubernetes clusters for `muster up`: the options, and the cluster made from them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from cli.errors import WRONG_USAGE, CliError
from cli.server.cluster_adapter import ClusterAdapter, ClusterContext, ClusterSetup, OpenCluster
from cli.server.operator import OPTIONS as OPERATOR_OPTIONS
from cli.server.operator import check_leave, make_operator
from cli.settings import read_settings
from controlplane.ports import EventLog, RankLogArchive

if TYPE_CHECKING:
    from adapters.database.database import Database

MIB = 2**20
# Values of --scheduler: Muster binds pods itself, or the scheduler of the cluster does.
OWN, THEIRS = "muster", "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesFlags:
    """The command line's options on the cluster."""

    kubeconfig: str = ""
    context: str = ""
    namespaces: str = ""
    scheduler: str = OWN
    devices: str = "kubelet"
    domain: str = "cluster.local"
    topology: str = ""
    qps: float = 100.0
    burst: int = 200
    in_flight: int = 32
    resync: float = 300.0
    instance: str = ""
    logs_max: int = 256
    code_image: str = ""
    board_image: str = ""
    waiting_image: str = "alpine:3.10"
    operator: bool = False
    leave_queued: str = ""


_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        default=lambda: read_settings().kubeconfig,
        show_default="KUBECONFIG, ~/.kube/config, or the pod's own account",
        help="How to reach the Kubernetes cluster.",
    ),
    click.option("--context", metavar="NAME", default="", help="The context of the kubeconfig."),
    click.option(
        "--namespaces",
        metavar="A,B",
        default="",
        help="Run jobs only in these namespaces. Default: all.",
    ),
    click.option(
        "--scheduler",
        metavar="NAME",
        default=OWN,
        show_default=True,
        help="muster: bind pods here; cluster: leave it to the cluster's scheduler; "
        "volcano or scheduler-plugins-scheduler: pass on whole gangs.",
    ),
    click.option(
        "--devices",
        type=click.Choice(["kubelet", "muster"]),
        default="kubelet",
        show_default=True,
        help="What chooses the GPUs within a node.",
    ),
    click.option(
        "--domain", default="cluster.local", show_default=True, help="Domain of the cluster's DNS."
    ),
    click.option(
        "--topology",
        metavar="LABEL,LABEL",
        default="",
        help="Labels of the network location of a node, outermost first.",
    ),
    click.option(
        "--qps", default=100.0, show_default=True, help="Requests per second; 0 means no limit."
    ),
    click.option(
        "--burst",
        default=200,
        show_default=True,
        help="Requests that may exceed --qps after a pause.",
    ),
    click.option(
        "--in-flight", default=32, show_default=True, help="Largest number of concurrent requests."
    ),
    click.option(
        "--resync",
        default=300.0,
        show_default=True,
        help="Seconds between full lists of all objects.",
    ),
    click.option(
        "--instance",
        metavar="NAME",
        default="",
        help="Label of created objects. Default: derived from the log.",
    ),
    click.option(
        "--code-image",
        metavar="IMAGE",
        default="",
        show_default="alpine/git",
        help="Image that checks out code, for jobs without one.",
    ),
    click.option(
        "--board-image",
        metavar="IMAGE",
        default="",
        show_default="tensorflow/tensorflow",
        help="Image of TensorBoard, for jobs without one.",
    ),
    click.option(
        "--waiting-image",
        default="alpine:3.10",
        show_default=True,
        help="Image of init containers that wait for DNS names.",
    ),
    click.option(
        "--logs-max", default=256, show_default=True, help="MiB of logs to keep of deleted pods."
    ),
    *OPERATOR_OPTIONS,
)


def configure(context: str, flags: KubernetesFlags) -> ClusterSetup:
    """Return the cluster of a context of the kubeconfig; without a name, of --context."""
    if context and flags.context not in ("", context):
        raise CliError(
            f"--cluster kubernetes:{context} and --context {flags.context} name two contexts",
            hint="Leave out one of them.",
            exit_code=WRONG_USAGE,
        )
    flags = replace(flags, context=context or flags.context)
    if flags.operator:
        check_leave(_names(flags.leave_queued))
    return ClusterSetup(
        description=_description(flags), open=partial(_open, flags), kind="kubernetes"
    )


def _description(flags: KubernetesFlags) -> str:
    where = flags.kubeconfig or "the one this pod runs in"
    role = ", as the operator of Kubeflow's jobs" if flags.operator else ""
    return f"Kubernetes: {where}, {flags.namespaces or 'all namespaces'}{role}"


@asynccontextmanager
async def _open(flags: KubernetesFlags, context: ClusterContext) -> AsyncIterator[OpenCluster]:
    # Imported here: a simulated cluster needs none of it.
    from adapters.kubernetes.api.connection import Connection, Limits
    from adapters.kubernetes.api.errors import BadAccess
    from adapters.kubernetes.api.kubeconfig import Access
    from adapters.kubernetes.cluster import KubernetesCluster, Options
    from adapters.kubernetes.render.ownership import owner_of

    engine_client = context.engine_client
    limits = Limits(qps=flags.qps, burst=flags.burst, in_flight=flags.in_flight)
    try:
        connection = await Connection.open(Access(flags.kubeconfig, flags.context), limits)
    except BadAccess as error:
        raise CliError(
            f"the Kubernetes cluster cannot be reached: {error}",
            hint="Name one with --kubeconfig and --context.",
            exit_code=WRONG_USAGE,
        ) from None
    gang = "" if flags.scheduler in (OWN, THEIRS) else flags.scheduler
    options = Options(
        namespaces=_names(flags.namespaces),
        domain=flags.domain,
        binds_itself=flags.scheduler == OWN,
        devices=flags.devices,
        gang=gang,
        levels=_names(flags.topology),
        resync_s=flags.resync,
        code_image=flags.code_image or Options().code_image,
        board_image=flags.board_image or Options().board_image,
        waiting_image=flags.waiting_image,
    )

    async def instance() -> str:
        return flags.instance or await log_name(engine_client.log)

    operator = None
    if flags.operator:
        operator = make_operator(
            connection,
            engine_client,
            context.clock.now,
            leave=_names(flags.leave_queued),
            namespaces=options.namespaces,
            resync_s=flags.resync,
            binds_itself=options.binds_itself,
        )
    async with AsyncExitStack() as stack:
        cluster = KubernetesCluster(
            connection,
            instance,
            options,
            archive=await _rank_logs(flags.logs_max * MIB, context.database, stack),
            owner_of=owner_of,
            on_planned=lambda job, plan: None if operator is None else operator.planned(job, plan),
        )
        stack.push_async_callback(cluster.close)
        if operator is None:
            yield OpenCluster(cluster)
        else:
            yield OpenCluster(cluster, run=operator.run)


async def _rank_logs(
    bytes_max: int, database: "Database | None", stack: AsyncExitStack
) -> RankLogArchive | None:
    """Return the archive of rank logs, or None if it may hold nothing.

    It is stored with the event log, so that the next leader can read it.
    """
    from adapters.database.opening import open_database
    from adapters.database.rank_logs import DatabaseRankLogs

    if bytes_max <= 0:
        return None
    if database is None:
        database = await open_database("sqlite:///:memory:")
        stack.push_async_callback(database.close)
    return DatabaseRankLogs(database, bytes_max)


async def log_name(log: EventLog) -> str:
    """Return a name unique to this log: the beginning of its first event's hash."""
    rows = await log.read(0, 1)
    assert rows, "an engine records its start before it asks for anything"
    return rows[0][-1].hex()[:16]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


ADAPTER = ClusterAdapter(
    scheme="kubernetes",
    form="kubernetes[:CONTEXT]",
    configure=configure,
    options=_OPTIONS,
    flags=KubernetesFlags,
)
