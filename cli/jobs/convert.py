"""`muster convert`: any manifest in the native form or in another version, without a server."""

from typing import Any

import click

from cli.client.documents import Document, read_documents
from cli.errors import WRONG_USAGE, CliError
from cli.jobs.submission import several, warn
from cli.output.tables import to_yaml, write_json
from cli.server.kinds import load_kinds
from controlplane.kinds.registry import convert_manifest
from controlplane.model.errors import Rejected


@click.command()
@click.option(
    "-f",
    "--file",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="The manifest; - reads standard input.",
)
@click.option(
    "--to",
    "target",
    default="native",
    show_default=True,
    metavar="native|own|KIND/VERSION",
    help="native: Muster's own form. own: the same kind, with all defaults.",
)
@click.option(
    "-o", "--output", type=click.Choice(("yaml", "json")), default="yaml", show_default=True
)
def convert(file: str, target: str, output: str) -> None:
    """Show any manifest in the native form, or in another version of its kind.

    Nothing is lost: what the other form cannot express is an error.

    \b
    Examples:
      muster convert -f tfjob.yaml                   in the native form
      muster convert -f tfjob.yaml --to own          with all defaults
      muster convert -f old.yaml --to TFJob/v1       a TFJob v1beta1 as v1
    """
    load_kinds()
    converted = [_converted(document, target) for document in read_documents(file)]
    if output == "json":
        many = {"apiVersion": "v1", "kind": "List", "items": converted}
        write_json(converted[0] if len(converted) == 1 else many)
    else:
        click.echo("---\n".join(to_yaml(each) for each in converted), nl=False)


def _converted(document: Document, target: str) -> dict[str, Any]:
    try:
        manifest, warnings = convert_manifest(document.value, target)
    except Rejected as refusal:
        raise _cli_error(document, refusal) from None
    for warning in warnings:
        warn(document, warning)
    return manifest


def _cli_error(document: Document, refusal: Rejected) -> CliError:
    if len(refusal.problems) > 1 and refusal.code == "invalid_manifest":
        return several(document, [(each.field, str(each)) for each in refusal.problems])
    return CliError(f"{document.where(refusal.field)}: {refusal.message}", exit_code=WRONG_USAGE)
