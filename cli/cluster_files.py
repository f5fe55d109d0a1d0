"""Files that say what a simulated cluster is made of."""

from pathlib import Path

from api.yaml_document import parse_yaml
from cli.complaints import WRONG_USAGE, Complaint
from cli.settings import reason
from controlplane.errors import Rejected
from simulator.topology import BadCluster, ClusterModel, documented, grid, parse_cluster


def read_cluster(spec: str, seed: int | None) -> ClusterModel:
    """The cluster that `sim` or `sim:FILE` names."""
    kind, _, file = spec.partition(":")
    if kind != "sim":
        hint = "Use --cluster sim, sim:FILE or kubernetes."
        raise Complaint(f"{spec!r} is no cluster", hint=hint, exit_code=WRONG_USAGE)
    return _cluster_in(Path(file), seed) if file else documented(grid(), seed=seed)


def _cluster_in(path: Path, seed: int | None) -> ClusterModel:
    try:
        document = read_cluster_document(path)
        return documented(parse_cluster(document), document, seed)
    except BadCluster as error:
        what = f"{path}: {error}"
    raise Complaint(what, hint="examples/cluster.yaml shows the form.", exit_code=WRONG_USAGE)


def read_cluster_document(path: Path) -> object:
    """A cluster file as it is written, for those who read it later."""
    try:
        return parse_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path} cannot be read: {reason(error)}"
    except Rejected as error:
        what = f"{path}: {error.message}"
    raise Complaint(what, hint="examples/cluster.yaml shows the form.", exit_code=WRONG_USAGE)
