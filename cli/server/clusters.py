"""The registry of cluster adapters, by the scheme of `--cluster SCHEME[:REST]`.

The adapters of this release are in `BUILT_IN`; installed packages add others through entry points
of the group `muster.clusters`. `docs/adding-a-cluster.md` adds one step by step.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from cli.errors import WRONG_USAGE, CliError
from cli.server import kubernetes, simulated
from cli.server.cluster_adapter import ClusterAdapter, ClusterSetup
from cli.server.entry_points import load_group

GROUP = "muster.clusters"
BUILT_IN = (simulated.ADAPTER, kubernetes.ADAPTER)
CLUSTERS: dict[str, ClusterAdapter] = {}

_Command = TypeVar("_Command", bound=Callable[..., Any])


class SchemeTaken(Exception):
    """Two cluster adapters have the same scheme."""


def register(adapter: ClusterAdapter) -> None:
    """Add an adapter; registering the same value again changes nothing.

    Raises SchemeTaken if another adapter has the same scheme.
    """
    known = CLUSTERS.setdefault(adapter.scheme, adapter)
    if known is not adapter:
        raise SchemeTaken(f"there is already a cluster {adapter.scheme}; choose another scheme")


for _adapter in BUILT_IN:
    register(_adapter)


def load_clusters() -> None:
    """Register every installed adapter; raise CliError for one that cannot be loaded."""
    load_group(GROUP, "cluster", ClusterAdapter, register, taken=SchemeTaken)


def configure(address: str, flags: Mapping[str, Any]) -> ClusterSetup:
    """Return the cluster that `--cluster` names; `flags` has the flags of adapters, by scheme.

    Raises CliError for an unknown scheme, and for what the adapter refuses.
    """
    scheme, _, rest = address.partition(":")
    adapter = CLUSTERS.get(scheme)
    if adapter is None:
        forms = ", ".join(each.form for each in CLUSTERS.values())
        raise CliError(
            f"--cluster {address!r} is not a cluster: there is no adapter {scheme!r}",
            hint=f"Use one of: {forms}.",
            exit_code=WRONG_USAGE,
        )
    return adapter.configure(rest, flags[scheme] if scheme in flags else adapter.flags())


def cluster_options(command: _Command) -> _Command:
    """Add the options of all adapters to a command; it gets `flags`, their values by scheme."""

    @wraps(command)
    def with_flags(**given: Any) -> Any:
        flags = {
            adapter.scheme: adapter.flags(
                **{field.name: given.pop(field.name) for field in fields(adapter.flags)}
            )
            for adapter in BUILT_IN
        }
        return command(flags=flags, **given)

    wrapped: Any = with_flags
    for adapter in reversed(BUILT_IN):
        for option in reversed(adapter.options):
            wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def refuse_foreign_options(address: str, context: click.Context, *, allowed: set[str]) -> None:
    """Raise CliError for a given option that belongs to another adapter than that of `address`."""
    scheme = address.partition(":")[0]
    for adapter in BUILT_IN:
        if adapter.scheme == scheme:
            continue
        for name in (field.name for field in fields(adapter.flags)):
            given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and name not in allowed:
                option = f"--{name.replace('_', '-')}"
                raise CliError(f"{option} needs --cluster {adapter.scheme}", exit_code=WRONG_USAGE)
