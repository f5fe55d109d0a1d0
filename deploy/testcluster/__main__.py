"""The test cluster from the command line."""

import argparse
import sys

from deploy.testcluster import cluster
from deploy.testcluster.places import Trouble, here


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.testcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="compile and fetch what the cluster is made of")
    up = commands.add_parser("up", help="start the cluster, building what is missing")
    up.add_argument("--nodes", type=int, default=2, help="real nodes (default 2)")
    up.add_argument("--gpus", type=int, default=8, help="made-up GPUs on each (default 8)")
    up.add_argument("--made-up", type=int, default=0, help="nodes without machines (default 0)")
    commands.add_parser("down", help="stop the cluster and forget its state")
    commands.add_parser("status", help="what runs, and what a shell needs to use it")
    node = commands.add_parser("node", help="do something to a real node")
    node.add_argument("deed", choices=sorted(cluster.DEEDS))
    node.add_argument("node", type=int)
    node.add_argument("rest", nargs="*", help="which daemon to kill; which GPUs are sick")
    asked = parser.parse_args()
    try:
        place = here()
        match asked.command:
            case "build":
                cluster.build(place)
            case "up":
                place = cluster.up(place, real=asked.nodes, gpus=asked.gpus, made_up=asked.made_up)
                print(cluster.describe(place))
            case "down":
                cluster.down(place)
            case "status":
                print(cluster.describe(place))
            case _:
                cluster.DEEDS[asked.deed](place, asked.node, *asked.rest)
    except Trouble as trouble:
        print(f"testcluster: {trouble}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
