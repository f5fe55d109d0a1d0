"""Logs of real pods as they are written: one stream per rank, and then that of its next run."""

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import click

from cli.client.client import Client, Refused, job_path
from cli.options import JobName
from controlplane.queries.views import JobDetail

LOOK_EVERY_S = 1.0
# More streams at once would burden the cluster, and a person cannot read that many.
STREAMS_MAX = 256


async def has_pods(server: Client, name: JobName) -> bool:
    """Return whether the job's cluster has pods whose logs can be followed."""
    try:
        await server.get(job_path(*name, "/place"), dict, rank=0)
    except Refused as refused:
        if refused.problem.code == "not_there":
            return True
        if refused.problem.code in ("no_pods", "no_such_route"):
            return False
        raise
    return True


async def follow_pods(
    server: Client,
    name: JobName,
    wanted: Sequence[str],
    tail: int,
    end: asyncio.Task[Any],
    container: str = "",
) -> None:
    """Print every line of the ranks until the job has ended and all lines are read."""
    from cli.jobs.job_logs import names_of, ranks_named

    streams: dict[tuple[int, int, int], asyncio.Task[None]] = {}
    while True:
        over = end.done()
        job = await server.get(job_path(*name), JobDetail)
        ranks, names = ranks_named(job, wanted)[:STREAMS_MAX], names_of(job)
        for rank in ranks:
            run = _run_of(job, rank)
            if run is not None and run not in streams and _has_pod(job, rank):
                prefix = "" if len(ranks) == 1 else f"[{names[rank]}] "
                query: dict[str, Any] = {"rank": rank, "tail": tail}
                if container:
                    query["container"] = container
                streams[run] = asyncio.create_task(_stream(server, name, query, prefix))
        if over:
            break
        await asyncio.wait({end}, timeout=LOOK_EVERY_S)
    await asyncio.wait_for(asyncio.gather(*streams.values()), timeout=30.0)


def _run_of(job: JobDetail, rank: int) -> tuple[int, int, int] | None:
    attempt = job.attempt
    if attempt is None or rank >= len(attempt.ranks):
        return None
    return attempt.number, rank, attempt.ranks[rank].incarnation


def _has_pod(job: JobDetail, rank: int) -> bool:
    """Return whether the rank's pod has started, as far as the control plane knows."""
    assert job.attempt is not None
    return job.attempt.ranks[rank].started_at is not None


async def _stream(server: Client, name: JobName, query: dict[str, Any], prefix: str) -> None:
    try:
        async with server.stream(job_path(*name, "/logs/follow"), **query) as content:
            async for line in content:
                click.echo(prefix + line.decode("utf-8", "replace").rstrip("\n"))
    except Refused as refused:
        if refused.problem.code not in ("not_there", "no_such_job"):
            raise
    except aiohttp.ClientError as error:
        click.echo(f"{prefix}(the stream broke off: {error})", err=True)
