"""`muster manifest` and `muster rank-env`: a job in the form of its kind, and its environment."""

from typing import Any

import click

from cli.client.client import connect, job_path, run
from cli.options import JobName, job_argument, namespace_option, parse_job, url_option
from cli.output.tables import to_yaml, write_json

form_option = click.option(
    "--to",
    "target",
    default="own",
    show_default=True,
    metavar="own|native|KIND/VERSION",
    help="own: the kind and version it was submitted as. native: Muster's own form.",
)
text_option = click.option(
    "-o", "--output", type=click.Choice(("yaml", "json")), default="yaml", show_default=True
)


@click.command()
@job_argument
@namespace_option
@form_option
@text_option
@url_option
def manifest(job: str, namespace: str, target: str, output: str, url: str | None) -> None:
    """Show a job's manifest with all defaults, and its status as its kind shows it.

    For a Kubeflow kind the status has the operators' conditions, replica statuses and times.

    \b
    Examples:
      muster manifest bert
      muster manifest bert --to native
      muster manifest bert -o json | jq '.status.conditions[-1]'
    """
    _show(run(_get(url, parse_job(job, namespace), "/manifest", to=target)), output)


@click.command("rank-env")
@job_argument
@namespace_option
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Which rank.")
@text_option
@url_option
def rank_env(job: str, namespace: str, rank: int, output: str, url: str | None) -> None:
    """Show the environment of a rank: its name, labels, variables, hosts and files.

    \b
    Examples:
      muster rank-env bert --rank 3
      muster rank-env bert -o json | jq -r '.environment.env.TF_CONFIG'
    """
    _show(run(_get(url, parse_job(job, namespace), f"/ranks/{rank}")), output)


async def _get(url: str | None, name: JobName, part: str, **query: object) -> dict[str, Any]:
    async with connect(url) as server:
        return await server.get(job_path(*name, part), dict[str, Any], **query)


def _show(document: dict[str, Any], output: str) -> None:
    if output == "json":
        write_json(document)
    else:
        click.echo(to_yaml(document), nl=False)
