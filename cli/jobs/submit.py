"""`muster submit`: manifests from a file, or made from flags."""

from typing import Any

import click

from cli.client.documents import Document, read_documents
from cli.errors import WRONG_USAGE, CliError
from cli.jobs.kind_commands import mpijob, pytorchjob, tfjob
from cli.jobs.submission import submission_options, submit_documents

FILE = "FILE"


class FileOrKind(click.Group):
    """`submit FILE` and `submit KIND ...`: an argument that is not a kind is a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [FILE, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["tfjob", "pytorchjob", "mpijob"]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "FILE [--plan] [--wait] [-o FORMAT] [-n NAMESPACE]")
        formatter.write_usage(ctx.command_path, "KIND --name NAME --image IMAGE [...] -- COMMAND")


@click.group(cls=FileOrKind)
def submit() -> None:
    """Submit a Kubernetes manifest (- reads standard input), or a job from flags.

    A file may have several documents: all are checked before the first one is submitted.

    \b
    Examples:
      muster submit examples/pytorchjob.yaml
      muster submit job.yaml --plan             what would happen; submits nothing
      muster submit job.yaml --wait             exit code 100 if it failed
      helm template my-chart | muster submit -
      muster submit tfjob --name mnist --workers 2 --gpus 1 \\
          --image tf:2.15 -- python mnist.py
    """


class _FileCommand(click.Command):
    """The command for files, which has no name on the command line."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("muster submit", "FILE [OPTIONS]")


@submit.command(FILE, cls=_FileCommand, hidden=True)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("-n", "--namespace", help="The namespace of manifests that name none.")
@submission_options
def submit_file(file: str, namespace: str | None, **given: Any) -> None:
    """Submit every document of a YAML or JSON file; - reads a pipe."""
    documents = read_documents(file)
    if namespace is not None:
        for document in documents:
            _put_into(document, namespace)
    submit_documents(documents, **given)


def _put_into(document: Document, namespace: str) -> None:
    metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
    if not isinstance(metadata, dict):
        return
    named = metadata.setdefault("namespace", namespace)
    if named != namespace:
        raise CliError(
            f"{document.where('metadata.namespace')}: the manifest has namespace {named}, "
            f"but -n is {namespace}",
            exit_code=WRONG_USAGE,
        )


for _command in (tfjob, pytorchjob, mpijob):
    submit.add_command(_command)
