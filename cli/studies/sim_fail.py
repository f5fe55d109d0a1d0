"""`muster sim fail`: make nodes of a running simulated cluster fail."""

from collections.abc import Mapping

import click

from cli.client.client import connect, run
from cli.options import Span, url_option
from cli.output.times import stamp
from controlplane.model.faults import NOTICE_S, NodeFaultKind
from controlplane.queries.views import FaultAccepted


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in NodeFaultKind]),
    default=NodeFaultKind.CRASH.value,
    show_default=True,
    help="What fails: the node itself, or the speed of its GPUs, network or storage.",
)
@click.option("--for", "duration_s", type=Span(), help="How long; without it, for good.")
@click.option(
    "--factor",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="The part of its speed that a slow node keeps.",
)
@click.option(
    "--notice",
    "notice_s",
    type=Span(),
    default=NOTICE_S,
    show_default=True,
    help="How long before it goes a reclaimed node gets notice.",
)
@url_option
def fail(
    nodes: tuple[str, ...],
    kind: str,
    duration_s: float | None,
    factor: float,
    notice_s: float,
    url: str | None,
) -> None:
    """Make nodes of a running simulated cluster fail, and see what happens.

    Times are those of the cluster's clock. A fault is an event of the log, so a restart, a replay
    and a fork repeat it.

    \b
    Examples:
      muster sim fail rack-0-1 --for 10m
      muster sim fail rack-0-1 rack-0-2 --kind spot_reclaim --notice 2m --for 30m
      muster sim fail rack-1-0 --kind slow --factor 0.3 --for 1h
      muster sim fail rack-1-0 --kind link --for 20m
    """
    body = {"kind": kind, "duration_s": duration_s, "factor": factor, "notice_s": notice_s}
    run(_fail(nodes, body, url))


async def _fail(nodes: tuple[str, ...], body: Mapping[str, object], url: str | None) -> None:
    async with connect(url) as server:
        for node in nodes:
            path = f"/v1/nodes/{node}/faults"
            accepted = await server.change("POST", path, FaultAccepted, body)
            click.echo(f"{accepted.node} from {stamp(accepted.begins_at)}: {accepted.message}")
