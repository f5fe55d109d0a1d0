"""`muster crds`: the custom resource definitions of every kind, to be applied to a cluster."""

from pathlib import Path
from typing import Any

import click

from adapters.kubernetes.operator.crds import definitions
from cli.errors import CliError
from cli.output.tables import to_yaml
from cli.server.kinds import load_kinds
from cli.settings import reason

HEAD = "# Made from controlplane/kinds by `make crds`; do not edit.\n"


@click.command()
@click.option(
    "--out", metavar="DIR", help="Write one file per definition instead of printing them."
)
def crds(out: str | None) -> None:
    """Print the custom resource definitions of all kinds, including kinds from plug-ins.

    A cluster that has them accepts jobs with kubectl; `muster up --cluster kubernetes --operator`
    runs them.

    \b
    Examples:
      muster crds | kubectl apply -f -
      muster crds --out deploy/crds
    """
    load_kinds()
    made = definitions()
    if out is None:
        click.echo("---\n".join(to_yaml(each) for each in made), nl=False)
        return
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        for name, text in files(made).items():
            (Path(out) / name).write_text(text, "utf-8")
    except OSError as error:
        raise CliError(f"{out} cannot be written: {reason(error)}") from None


def files(made: list[dict[str, Any]]) -> dict[str, str]:
    """Return file name -> content: a file per definition, and a kustomization that lists them."""
    documents = {f"{each['metadata']['name']}.yaml": HEAD + to_yaml(each) for each in made}
    listing = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(documents),
    }
    return {**documents, "kustomization.yaml": HEAD + to_yaml(listing)}
