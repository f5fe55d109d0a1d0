"""Files that describe simulated clusters."""

from pathlib import Path

from api.requests.yaml_document import parse_yaml
from cli.errors import WRONG_USAGE, CliError
from cli.settings import reason
from controlplane.model.errors import Rejected
from simulator.network.topology import BadCluster, ClusterModel, documented, grid, parse_cluster


def read_cluster(file: str, seed: int | None = None) -> ClusterModel:
    """Return the cluster model that a file describes; the default model if `file` is empty.

    Raises CliError.
    """
    return _cluster_in(Path(file), seed) if file else documented(grid(), seed=seed)


def _cluster_in(path: Path, seed: int | None) -> ClusterModel:
    try:
        document = read_cluster_document(path)
        return documented(parse_cluster(document), document, seed)
    except BadCluster as error:
        what = f"{path}: {error}"
    raise CliError(what, hint="examples/cluster.yaml shows the form.", exit_code=WRONG_USAGE)


def read_cluster_document(path: Path) -> object:
    """Return the document of a cluster file as written; raise CliError if it cannot be read."""
    try:
        return parse_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path} cannot be read: {reason(error)}"
    except Rejected as error:
        what = f"{path}: {error.message}"
    raise CliError(what, hint="examples/cluster.yaml shows the form.", exit_code=WRONG_USAGE)
