"""Kinds and hints of manifests: those of this release, and those of installed packages.

A package adds a kind with a Python entry point of the group `muster.kinds`, and the hint of a cluster
adapter with one of the group `muster.hints`.
"""

from adapters.simulated_cluster.workload import SCHEMA
from cli.server.entry_points import load_group
from controlplane.kinds.hints import HintSchema, HintTaken
from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import KindTaken, register, register_hint

KINDS = "muster.kinds"
HINTS = "muster.hints"


def load_kinds() -> None:
    """Register every installed kind and hint; raise CliError for one that cannot be loaded."""
    register_hint(SCHEMA)
    load_group(KINDS, "kind", Kind, register, taken=KindTaken)
    load_group(HINTS, "hint", HintSchema, register_hint, taken=HintTaken)
