"""Simulated clusters for `muster up`: the options, and the cluster made from them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import click

from adapters.clocks.pacer import Pacer
from adapters.simulated_cluster.recovered import RecoveredCluster
from api.cluster.about import SIMULATED
from api.engine.engine_client import EngineClient
from cli.cluster.cluster_files import read_cluster
from cli.server.cluster_adapter import ClusterAdapter, ClusterContext, ClusterSetup, OpenCluster
from cli.server.heartbeat import Heartbeat
from controlplane.queries.queries import gpus_wanted
from simulator.network.topology import ClusterModel


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFlags:
    """The command line's options on a simulated cluster."""

    speed: float = 1.0
    seed: int | None = None


OPTIONS = (
    click.option(
        "--speed",
        type=click.FloatRange(0.001, 100_000),
        default=1.0,
        show_default=True,
        help="Simulated seconds per real second.",
    ),
    click.option(
        "--seed", type=click.IntRange(0), help="Of the simulated cluster's random faults."
    ),
)


def configure(file: str, flags: SimulatedFlags) -> ClusterSetup:
    """Return the cluster that a file describes; without a name, the default one."""
    return simulated_cluster(read_cluster(file, flags.seed), flags.speed)


def simulated_cluster(model: ClusterModel, speed: float = 1.0) -> ClusterSetup:
    """Return the setup of a simulated cluster."""
    pace = "real time" if speed == 1 else f"{speed:g} simulated seconds a second"
    return ClusterSetup(
        description=f"simulated: {len(model.nodes)} nodes, {model.gpus} GPUs, {pace}",
        open=partial(_open, model, speed),
        kind=SIMULATED,
        speed=speed,
    )


@asynccontextmanager
async def _open(
    model: ClusterModel, speed: float, context: ClusterContext
) -> AsyncIterator[OpenCluster]:
    engine_client, clock = context.engine_client, context.clock
    pacer = Pacer(None, clock.twin())
    cluster = RecoveredCluster(
        engine_client.log,
        model,
        pacer,
        now=clock.now,
        waiting_gpus=lambda: _waiting_gpus(engine_client),
    )
    heartbeat = Heartbeat(engine_client, clock, speed)

    async def run() -> None:
        await asyncio.gather(pacer.run(), heartbeat.run())

    yield OpenCluster(cluster, telemetry=cluster, run=run, stop=heartbeat.stop)


def _waiting_gpus(engine_client: EngineClient) -> int:
    """Return the number of GPUs that queued gangs request; autoscaled pools grow by it."""
    if engine_client.engine is None:
        return 0
    return gpus_wanted(engine_client.engine.world)


ADAPTER = ClusterAdapter(
    scheme="sim",
    form="sim[:FILE]",
    configure=configure,
    options=OPTIONS,
    flags=SimulatedFlags,
)
