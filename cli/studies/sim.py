"""`muster sim`: single questions to the simulator's physics, and the accuracy of its answers."""

import click

from cli.studies.sim_cluster import cluster
from cli.studies.sim_collective import collective
from cli.studies.sim_fail import fail
from cli.studies.sim_step import step
from cli.studies.sim_topology import topology
from cli.studies.sim_validate import validate


@click.group()
def sim() -> None:
    """Query the simulator's performance model, and validate it with published measurements.

    \b
    Examples:
      muster sim step --model resnet50 --gpu P100 --gpus 64 --nodes 8 --net 25GbE
      muster sim collective --size 100MB --gpu V100 --gpus 16 --nodes 2 --net EDR
      muster sim cluster examples/cluster.yaml
      muster sim topology topo.csv --server dgx-a100 --out cluster.yaml
      muster sim validate --points scaling_points.json
      muster sim fail rack-0-1 --for 10m
    """


for _command in (step, collective, cluster, topology, validate, fail):
    sim.add_command(_command)
