"""`muster crds`: the custom resource definitions of every kind, to be given to a cluster."""

from pathlib import Path
from typing import Any

import click

from adapters.kubernetes.operator.definitions import definitions
from cli.complaints import Complaint
from cli.kinds import load_kinds
from cli.settings import reason
from cli.tables import to_yaml

HEAD = "# Made from controlplane/kinds by `make crds`; do not edit.\n"


@click.command()
@click.option("--out", metavar="DIR", help="Write a file for each one, in place of printing them.")
def crds(out: str | None) -> None:
    """Print the custom resource definitions of all kinds, also of those from packages.

    A cluster that has them takes jobs with kubectl; `muster up --cluster kubernetes --operator`
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
        raise Complaint(f"{out} cannot be written: {reason(error)}") from None


def files(made: list[dict[str, Any]]) -> dict[str, str]:
    """What the folder holds: a file for each definition, and one that names them for kustomize."""
    found = {f"{each['metadata']['name']}.yaml": HEAD + to_yaml(each) for each in made}
    listing = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(found),
    }
    return {**found, "kustomization.yaml": HEAD + to_yaml(listing)}
