"""`muster sim`: single questions to the simulator's physics, and how true its answers are."""

import click

from cli.sim_cluster import cluster
from cli.sim_collective import collective
from cli.sim_step import step
from cli.sim_topology import topology
from cli.sim_validate import validate


@click.group()
def sim() -> None:
    """Ask the simulator's physics, and check it against published measurements.

    \b
    Examples:
      muster sim step --model resnet50 --gpu P100 --gpus 64 --nodes 8 --net 25GbE
      muster sim collective --size 100MB --gpu V100 --gpus 16 --nodes 2 --net EDR
      muster sim cluster examples/cluster.yaml
      muster sim topology topo.csv --server dgx-a100 --out cluster.yaml
      muster sim validate --points scaling_points.json
    """


for _command in (step, collective, cluster, topology, validate):
    sim.add_command(_command)
