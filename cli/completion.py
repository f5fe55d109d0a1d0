"""Shell completion, and the version of this program."""

import asyncio
from importlib.metadata import version as installed_version
from platform import python_version

import click
from click.shell_completion import get_completion_class

from cli.settings import read_settings

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MUSTER_COMPLETE"
# The longest wait for the server, in seconds, after a person pressed the tab key.
ASK_S_MAX = 1.0


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell. It completes commands, options and job names.

    \b
    Put one of these where your shell starts:
      eval "$(muster completion bash)"            in ~/.bashrc
      eval "$(muster completion zsh)"             in ~/.zshrc
      muster completion fish > ~/.config/fish/completions/muster.fish
    """
    from cli.main import PROGRAM, cli

    maker = get_completion_class(shell)
    assert maker is not None, shell
    click.echo(maker(cli, {}, PROGRAM, VARIABLE).source())


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"muster {installed_version('muster')}, Python {python_version()}")


def job_names(namespace: str | None, incomplete: str) -> list[str]:
    """Return the names of jobs that begin with `incomplete`; none if the server is slow."""
    try:
        names = asyncio.run(_job_names(namespace or read_settings().namespace))
    except Exception:  # noqa: BLE001 - a completion never disturbs the person who types
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _job_names(namespace: str) -> list[str]:
    from cli.client.client import Page, connect
    from controlplane.queries.views import JobView

    async with asyncio.timeout(ASK_S_MAX), connect() as server:
        page = await server.get("/v1/jobs", Page[JobView], namespace=namespace, limit=200)
        return [job.name for job in page.items]
