"""Snapshots of the state, in a table of their own, each with a hash of its own."""

import hashlib
from collections.abc import Callable
from typing import Any

from sqlalchemy import delete, func, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import NullType

from adapters.database.tables import snapshots
from controlplane.ports import StateSnapshot, spare_snapshots


async def save(
    connection: AsyncConnection, snapshot: StateSnapshot, insert: Callable[..., Any]
) -> None:
    """Keep a snapshot in place of another at its position, and drop those that are too many."""
    values = {"body": snapshot.body, "hash": _hash(*snapshot)}
    await connection.execute(
        insert(snapshots)
        .values(position=snapshot.position, **values)
        .on_conflict_do_update(index_elements=["position"], set_=values)
    )
    sizes = await connection.execute(select(snapshots.c.position, func.length(snapshots.c.body)))
    spare = spare_snapshots(dict(map(tuple, sizes)))
    if spare:
        await connection.execute(delete(snapshots).where(snapshots.c.position.in_(spare)))


async def latest(connection: AsyncConnection, at_most: int | None) -> StateSnapshot | None:
    """The newest snapshot that is whole, of those not above `at_most`."""
    body, digest = (type_coerce(c, NullType()) for c in (snapshots.c.body, snapshots.c.hash))
    newest = select(snapshots.c.position, body, digest).order_by(snapshots.c.position.desc())
    while True:
        fitting = newest if at_most is None else newest.where(snapshots.c.position <= at_most)
        row = (await connection.execute(fitting.limit(1))).first()
        if row is None:
            return None
        if isinstance(row[1], bytes) and row[2] == _hash(row[0], row[1]):
            return StateSnapshot(row[0], row[1])
        at_most = row[0] - 1


def _hash(position: int, body: bytes) -> bytes:
    digest = hashlib.sha256(b"%d " % position)
    digest.update(body)
    return digest.digest()
