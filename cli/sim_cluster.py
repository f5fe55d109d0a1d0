"""`muster sim cluster`: what a cluster file describes."""

from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def cluster(file: Path) -> None:
    """Check a cluster file."""
    raise NotImplementedError
