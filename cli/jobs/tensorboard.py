"""`muster tensorboard`: how to reach a job's TensorBoard."""

import click

from cli.client.client import connect, job_path, run
from cli.errors import CliError
from cli.options import JobName, job_argument, namespace_option, parse_job, url_option
from controlplane.model.resources import supplies_of
from controlplane.model.supplies import TENSORBOARD_PORT
from controlplane.queries.views import JobDetail

HINT = "Submit it with spec.supplies.tensorboard, or with --tensorboard --logdir PATH."


@click.command()
@job_argument
@namespace_option
@url_option
def tensorboard(job: str, namespace: str, url: str | None) -> None:
    """Show how to reach a job's TensorBoard.

    It runs from the job's start until the job is deleted, if the job asked for it.

    \b
    Examples:
      muster tensorboard bert
      eval "$(muster tensorboard bert | grep port-forward)"
    """
    name = parse_job(job, namespace)
    job_detail = run(_detail(url, name))
    board = supplies_of(job_detail.spec).tensorboard
    if board is None:
        raise CliError(f"{name} has no TensorBoard", hint=HINT)
    service = f"{name.name}-tensorboard"
    click.echo(f"logs       {board.log_dir}")
    click.echo(f"in pods    http://{service}.{name.namespace}.svc/")
    click.echo("from here  http://127.0.0.1:6006/ while this runs:")
    click.echo(f"kubectl port-forward -n {name.namespace} service/{service} {TENSORBOARD_PORT}:80")


async def _detail(url: str | None, name: JobName) -> JobDetail:
    async with connect(url) as server:
        return await server.get(job_path(*name), JobDetail)
