"""How `muster up` drives a Kubernetes cluster: its options, and the cluster made of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from api.control import Control
from cli.complaints import WRONG_USAGE, Complaint
from cli.operator import OPTIONS as OPERATOR_OPTIONS
from cli.operator import make_operator
from cli.settings import read_settings
from cli.sources import Kind, Source
from controlplane.ports import EventLog

if TYPE_CHECKING:
    from adapters.kubernetes.cluster import KubernetesCluster
    from adapters.kubernetes.operator.operator import Operator

MIB = 2**20
OWN, THEIRS = "muster", "cluster"
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesFlags:
    """What was said about the cluster on the command line."""

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
    click.option("--context", metavar="NAME", default="", help="Which of the kubeconfig's."),
    click.option(
        "--namespaces",
        metavar="A,B",
        default="",
        help="Drive jobs in these namespaces only; without it, in all.",
    ),
    click.option(
        "--scheduler",
        metavar="NAME",
        default=OWN,
        show_default=True,
        help="muster binds pods itself; cluster leaves nodes to the cluster's scheduler; "
        "volcano or scheduler-plugins-scheduler gets whole gangs.",
    ),
    click.option(
        "--devices",
        type=click.Choice(["kubelet", "muster"]),
        default="kubelet",
        show_default=True,
        help="Who chooses the GPUs within a node.",
    ),
    click.option(
        "--domain", default="cluster.local", show_default=True, help="Of the cluster's DNS."
    ),
    click.option(
        "--topology",
        metavar="LABEL,LABEL",
        default="",
        help="Labels that say where a node stands, outermost first.",
    ),
    click.option("--qps", default=100.0, show_default=True, help="Requests a second; 0: no limit."),
    click.option("--burst", default=200, show_default=True, help="So many at once after a pause."),
    click.option("--in-flight", default=32, show_default=True, help="So many under way at a time."),
    click.option(
        "--resync", default=300.0, show_default=True, help="List everything again, in seconds."
    ),
    click.option(
        "--instance",
        metavar="NAME",
        default="",
        help="Marks what is made; without it, a name of the log's own.",
    ),
    click.option(
        "--code-image",
        metavar="IMAGE",
        default="",
        show_default="alpine/git",
        help="What checks code out, for jobs that name none.",
    ),
    click.option(
        "--board-image",
        metavar="IMAGE",
        default="",
        show_default="tensorflow/tensorflow",
        help="What shows TensorBoard, for jobs that name none.",
    ),
    click.option(
        "--waiting-image",
        default="alpine:3.10",
        show_default=True,
        help="In which a rank waits for another one's name.",
    ),
    click.option(
        "--logs-max", default=256, show_default=True, help="MiB of logs kept after pods are gone."
    ),
    *OPERATOR_OPTIONS,
)


def kubernetes_options(command: _Command) -> _Command:
    """Gives a command the options, gathered in one argument `kubernetes`."""
    names = [field.name for field in fields(KubernetesFlags)]

    @wraps(command)
    def gathered(**given: Any) -> Any:
        flags = KubernetesFlags(**{name: given.pop(name) for name in names})
        return command(kubernetes=flags, **given)

    found: Any = gathered
    for option in reversed(_OPTIONS):
        found = option(found)
    return found  # type: ignore[no-any-return]


class Driven(NamedTuple):
    """A real cluster, and who stands in for its operators, if anybody does."""

    cluster: "KubernetesCluster"
    operator: "Operator | None"

    async def run(self) -> None:
        """What has to run beside the engine, for ever."""
        if self.operator is None:
            await asyncio.Event().wait()
        else:
            await self.operator.run()


@asynccontextmanager
async def kubernetes_cluster(
    flags: KubernetesFlags, control: Control, source: Source, now: Callable[[], float]
) -> "AsyncIterator[Driven]":
    """The cluster, connected; closed at the end."""
    # Only here: who simulates needs none of it.
    from adapters.kubernetes.access import Access
    from adapters.kubernetes.cluster import KubernetesCluster, Options
    from adapters.kubernetes.connection import Connection, Limits
    from adapters.kubernetes.errors import BadAccess
    from adapters.kubernetes.ownership import owner_of

    limits = Limits(qps=flags.qps, burst=flags.burst, in_flight=flags.in_flight)
    try:
        connection = await Connection.open(Access(flags.kubeconfig, flags.context), limits)
    except BadAccess as error:
        raise Complaint(
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
        return flags.instance or await log_name(control.log)

    operator = None
    if flags.operator:
        leave = _names(flags.leave_queued)
        operator = make_operator(
            connection,
            control,
            now,
            leave=leave,
            namespaces=options.namespaces,
            resync_s=flags.resync,
            binds_itself=options.binds_itself,
        )
    cluster = KubernetesCluster(
        connection,
        instance,
        options,
        archive=_archive(flags, source),
        owner_of=owner_of,
        on_planned=lambda job, plan: None if operator is None else operator.planned(job, plan),
    )
    try:
        yield Driven(cluster, operator)
    finally:
        await cluster.close()


async def log_name(log: EventLog) -> str:
    """A name that no other log has: the beginning of its first event's hash."""
    rows = await log.read(0, 1)
    assert rows, "an engine records its start before it asks for anything"
    return rows[0][-1].hex()[:16]


def _names(told: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in told.split(",") if name.strip())


def _archive(flags: KubernetesFlags, source: Source) -> Any:
    """Beside the event log, so that whoever leads it next finds what was kept."""
    from adapters.kubernetes.log_archive import FileLogArchive
    from adapters.kubernetes.postgres_log_archive import PostgresLogArchive

    bytes_max = flags.logs_max * MIB
    if bytes_max <= 0:
        return None
    match source.kind:
        case Kind.POSTGRES:
            return PostgresLogArchive(source.place, bytes_max)
        case Kind.MEMORY:
            return FileLogArchive(":memory:", bytes_max)
        case _:
            return FileLogArchive(source.path.with_name(f"{source.path.name}.logs"), bytes_max)
