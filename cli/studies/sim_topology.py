"""`muster sim topology`: a cluster file from a recorded leaf-spine topology."""

from gzip import BadGzipFile, decompress
from pathlib import Path

import click
import yaml

from cli.errors import WRONG_USAGE, CliError
from cli.settings import reason
from simulator.config.parsing import BadCluster
from simulator.network.leaf_spine import cluster_document
from simulator.network.topology import parse_cluster


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="CSV")
@click.option("--server", help="Server type of every host, such as dgx-a100.")
@click.option("--gpus", type=click.IntRange(0, 64), help="Without --server: GPUs per host.")
@click.option("--gpu", "gpu_type", help="Without --server: GPU model.")
@click.option("--net", help="Network of a host, such as '4x200Gb HDR IB'.")
@click.option(
    "--oversubscription",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    help="Bandwidth of a leaf's hosts over that of its uplinks.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file.")
def topology(
    file: Path,
    server: str | None,
    gpus: int | None,
    gpu_type: str | None,
    net: str | None,
    oversubscription: float,
    out: Path | None,
) -> None:
    """Make a cluster file from a CSV of hosts and their access switches.

    CSV has the columns host and ASW, and PSW and DSW where the switches above are known, plain or
    compressed by gzip, as in Alibaba's Lingjun dataset of 2023. Each access switch becomes a rack
    and a leaf; those above become labels of the nodes.

    \b
    Example:
      muster sim topology topo.csv --server dgx-a100 --out cluster.yaml
    """
    given = {"server": server, "gpus": gpus, "gpu_type": gpu_type, "net": net}
    node = {name: value for name, value in given.items() if value is not None}
    try:
        content = file.read_bytes()
        text = (decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8")
        document = cluster_document(text.splitlines(), node, oversubscription=oversubscription)
        model = parse_cluster(document)
    except (BadGzipFile, EOFError) as error:
        raise CliError(f"{file} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise CliError(f"{file} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError:
        raise _bad(file, "is not UTF-8 text") from None
    except BadCluster as bad:
        raise _bad(file, str(bad)) from None
    written = yaml.safe_dump(document, sort_keys=False, width=100)
    if out is None:
        click.echo(written, nl=False)
        return
    try:
        out.write_text(written, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{out} cannot be written: {reason(error)}") from None
    leaves = len({node.rack for node in model.nodes})
    click.echo(f"{out}: {len(model.nodes)} nodes under {leaves} leaves, {model.gpus} GPUs")


def _bad(file: Path, problem: str) -> CliError:
    hint = "It needs a header with host and ASW, and a line for each host."
    return CliError(f"{file}: {problem}", hint=hint, exit_code=WRONG_USAGE)
