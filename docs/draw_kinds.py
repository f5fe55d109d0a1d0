"""Draws docs/kinds.md from the registry, so that the table cannot drift from the code.

`python docs/draw_kinds.py` writes the file; `make docs` does the same.
"""

from collections.abc import Iterable
from pathlib import Path

from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import BUILT_IN

HEAD = """# Kinds

Made from the registry (`controlplane/kinds/registry.py`) by `make docs`; do not edit. `muster convert`
shows any of these manifests in the native form, `kind: Job`, and `--to own` with every default spelled
out. `docs/adding-a-kind.md` adds one more.

"""
TAIL = """
The port is added to the container of that name, unless it has one of that name already. A role without
`replicas` gets one (the workers of an MPIJob none), and role names may be
in any case. The rest is the same for all kinds:

| field of the run policy | default | checked |
| --- | --- | --- |
| cleanPodPolicy | None; in the versions before `kubeflow.org/v1`: Running for TFJob, All for XGBoostJob and MXJob, All in v1alpha1 | None, Running, All |
| backoffLimit, or the annotation `muster.dev/restart-limit` (a TrainJob has no such field) | 6 | 0 or more |
| activeDeadlineSeconds, ttlSecondsAfterFinished | none | 0 to ten years |
| schedulingPolicy.queue | the annotation `muster.dev/queue`, Kueue's or KAI's label, or default | it cannot change later |
| schedulingPolicy.priorityClass | normal | low, normal, high; any other name is kept for the cluster and counts as 0 here, with a warning; or a number in the annotation `muster.dev/priority` |
| schedulingPolicy.minAvailable | all replicas | 0 to 10,000 |
| schedulingPolicy.scheduleTimeoutSeconds | 600 | 0 to ten years |
| the annotation `muster.dev/image-timeout-seconds` | 300 | 0 to ten years |
| managedBy | Muster runs it | `muster.dev/muster`, the operator's own name, or `kueue.x-k8s.io/multikueue`, whose jobs are left alone; it cannot change later |

Versions with `beta` and `alpha2` had the first four in `spec` itself, and so had `kubeflow.org/v1` in
2019; both places are accepted, and it is an error if they disagree. When a rank fails, the whole gang
restarts; with the annotation `muster.dev/restart-scope: rank` only that rank restarts, as with the
operators.

`muster convert --to KIND/VERSION` turns every version into the newest of its kind, and warns where
the newest version behaves differently (in an MPIJob v2beta1 the launcher logs in with ssh, for example). Other conversions
are refused where anything would be lost.

All problems of a manifest are reported at once. Each has a type (Required, Invalid, Forbidden,
NotSupported, Duplicate, TypeInvalid), the path of its field, and advice.
"""
COLUMNS = ("kind", "versions", "roles", "container", "port", "restart", "who decides")


def draw() -> str:
    """The whole page."""
    rows = (COLUMNS, ("---",) * len(COLUMNS), *(_row(kind) for kind in BUILT_IN))
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + TAIL


def _row(kind: Kind) -> tuple[str, ...]:
    about = kind.about
    return (
        kind.name,
        _codes(form.version for form in kind.forms),
        ", ".join(about.roles) or "-",
        about.container or "-",
        about.port or "-",
        about.restart or "-",
        about.decides or "-",
    )


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


if __name__ == "__main__":
    (Path(__file__).parent / "kinds.md").write_text(draw())
