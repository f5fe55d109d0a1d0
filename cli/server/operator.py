"""The operator for `muster up`, which replaces the Kubeflow operators: its options and assembly."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from api.engine.engine_client import EngineClient
from cli.errors import WRONG_USAGE, CliError

if TYPE_CHECKING:
    from adapters.kubernetes.api.connection import Connection
    from adapters.kubernetes.operator.operator import Operator

OPTIONS = (
    click.option(
        "--operator",
        is_flag=True,
        help="Run Kubeflow jobs that are created with kubectl.",
    ),
    click.option(
        "--leave-queued",
        metavar="kueue,volcano",
        default="",
        help="Ignore jobs that are in queues of these schedulers.",
    ),
)


def make_operator(
    connection: "Connection",
    engine_client: EngineClient,
    now: Callable[[], float],
    *,
    leave: tuple[str, ...],
    namespaces: tuple[str, ...],
    resync_s: float,
    binds_itself: bool,
) -> "Operator":
    """Return the operator, subscribed to the control plane; the caller must run it."""
    from adapters.kubernetes.operator.client import OperatorOptions
    from adapters.kubernetes.operator.operator import Operator

    options = OperatorOptions(
        leave=frozenset(leave), namespaces=namespaces, binds_itself=binds_itself
    )
    operator = Operator(
        connection, engine_client, engine_client.log, now, options, resync_s=resync_s
    )
    engine_client.listen(operator.recorded)
    return operator


def check_leave(leave: tuple[str, ...]) -> None:
    """Raise CliError for a name of a scheduler that is not known."""
    from adapters.kubernetes.operator.parse import QUEUE_MARKS

    for each in leave:
        if each not in QUEUE_MARKS:
            message = f"--leave-queued: {each!r} is not one of {', '.join(QUEUE_MARKS)}"
            raise CliError(message, exit_code=WRONG_USAGE)
