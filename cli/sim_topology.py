"""`muster sim topology`: a cluster file from a recorded leaf-spine topology."""

from gzip import BadGzipFile, decompress
from pathlib import Path

import click
import yaml

from cli.complaints import WRONG_USAGE, Complaint
from cli.settings import reason
from simulator.fields import BadCluster
from simulator.leaf_spine import cluster_document
from simulator.topology import parse_cluster


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="CSV")
@click.option("--server", help="What every host is, such as dgx-a100; see the docs.")
@click.option("--gpus", type=click.IntRange(0, 64), help="GPUs of a host, without --server.")
@click.option("--gpu", "gpu_type", help="Their type, without --server.")
@click.option("--net", help="The network of a host, such as 4x200Gb HDR IB.")
@click.option(
    "--oversubscription",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    help="How much more the hosts of a leaf send than its uplinks carry.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there.")
def topology(
    file: Path,
    server: str | None,
    gpus: int | None,
    gpu_type: str | None,
    net: str | None,
    oversubscription: float,
    out: Path | None,
) -> None:
    """Make a cluster file of a recorded topology: hosts under access switches.

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
        raise Complaint(f"{file} is no whole gzip file: {error}") from None
    except OSError as error:
        raise Complaint(f"{file} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError:
        raise _bad(file, "is no text in UTF-8") from None
    except BadCluster as bad:
        raise _bad(file, str(bad)) from None
    written = yaml.safe_dump(document, sort_keys=False, width=100)
    if out is None:
        click.echo(written, nl=False)
        return
    try:
        out.write_text(written, encoding="utf-8")
    except OSError as error:
        raise Complaint(f"{out} cannot be written: {reason(error)}") from None
    leaves = len({node.rack for node in model.nodes})
    click.echo(f"{out}: {len(model.nodes)} nodes under {leaves} leaves, {model.gpus} GPUs")


def _bad(file: Path, problem: str) -> Complaint:
    hint = "It needs a header with host and ASW, and a line for each host."
    return Complaint(f"{file}: {problem}", hint=hint, exit_code=WRONG_USAGE)
