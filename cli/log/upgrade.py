"""Upgrading the schema of a log."""

from contextlib import nullcontext

from cli.errors import WRONG_USAGE, CliError
from cli.log.sources import Kind, Source
from cli.server.file_lock import sole_writer
from controlplane.model.errors import LogUnavailable


async def upgraded(source: Source) -> tuple[str, str]:
    """Upgrade the log; return the schema versions before and after. Raises CliError on failure."""
    from adapters.database.opening import upgrade_database

    if source.kind not in (Kind.SQLITE, Kind.POSTGRES):
        raise CliError(f"{source} is in no database", exit_code=WRONG_USAGE)
    if source.kind is Kind.SQLITE and not source.path.exists():
        raise CliError(f"there is no log {source}")
    with sole_writer(source.path) if source.kind is Kind.SQLITE else nullcontext():
        try:
            return await upgrade_database(source.where)
        except LogUnavailable as error:
            raise CliError(str(error)) from None
