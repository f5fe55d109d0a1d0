"""`muster policy`: the scheduling policy of the cluster."""

from typing import Any

import click
from msgspec import to_builtins

from cli.client.client import connect, run
from cli.client.key_values import merged, read_settings
from cli.options import output_option, url_option
from cli.output.tables import write_as

POLICY = "/v1/policy"


@click.group()
def policy() -> None:
    """Show and change how the cluster is scheduled.

    \b
    Examples:
      muster policy get
      muster policy set discipline=easy
      muster policy set model=quota_fair preempt.reclaim=any
      muster policy set levels=block,rack consolidate=true
    """


@policy.command("get")
@output_option("yaml", "json")
@url_option
def policy_get(output: str, url: str | None) -> None:
    """Show the policy with all defaults."""
    write_as(output, run(_get(url)))


async def _get(url: str | None) -> dict[str, Any]:
    async with connect(url) as server:
        policy: dict[str, Any] = to_builtins(await server.get(POLICY, dict[str, Any]))
        return policy


@policy.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@url_option
def policy_set(settings: tuple[str, ...], url: str | None) -> None:
    """Change settings of the policy.

    `muster policy get` lists the KEYs; a nested KEY has a dot,
    as in preempt.within_queue=lower. An empty VALUE resets a setting to its default.
    """
    changes = read_settings(settings)
    run(_set(changes, url))
    click.echo(f"policy set: {' '.join(settings)}")


async def _set(changes: dict[str, Any], url: str | None) -> None:
    async with connect(url) as server:
        known = await server.get(POLICY, dict[str, Any])
        body = merged({k: v for k, v in known.items() if v is not None}, changes)
        await server.change("PUT", POLICY, dict[str, Any], body)
