"""How `muster up` stands in for the Kubeflow operators: its options, and the operator made of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from api.control import Control
from cli.complaints import WRONG_USAGE, Complaint

if TYPE_CHECKING:
    from adapters.kubernetes.connection import Connection
    from adapters.kubernetes.operator.operator import Operator

OPTIONS = (
    click.option(
        "--operator",
        is_flag=True,
        help="Run the Kubeflow jobs that are applied to the cluster with kubectl.",
    ),
    click.option(
        "--leave-queued",
        metavar="kueue,volcano",
        default="",
        help="Leave jobs alone that are in the queues of these schedulers.",
    ),
)


def make_operator(
    connection: "Connection",
    control: Control,
    now: Callable[[], float],
    *,
    leave: tuple[str, ...],
    namespaces: tuple[str, ...],
    resync_s: float,
    binds_itself: bool,
) -> "Operator":
    """The operator, listening to the control plane; it is still to be run."""
    from adapters.kubernetes.operator.desk import Options
    from adapters.kubernetes.operator.operator import Operator

    check_leave(leave)
    options = Options(leave=frozenset(leave), namespaces=namespaces, binds_itself=binds_itself)
    operator = Operator(connection, control, control.log, now, options, resync_s=resync_s)
    control.listen(operator.recorded)
    return operator


def check_leave(leave: tuple[str, ...]) -> None:
    from adapters.kubernetes.operator.reading import QUEUE_MARKS

    for each in leave:
        if each not in QUEUE_MARKS:
            told = f"--leave-queued: {each!r} is not one of {', '.join(QUEUE_MARKS)}"
            raise Complaint(told, exit_code=WRONG_USAGE)
