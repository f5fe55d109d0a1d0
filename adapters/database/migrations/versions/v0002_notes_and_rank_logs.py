"""Notes and rank logs: tables that decide nothing, next to the log."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("written", _NUMBER, sa.Identity(always=True), primary_key=True),
        sa.Column("book", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.UniqueConstraint("book", "key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rank_logs",
        sa.Column("number", _NUMBER, sa.Identity(always=True), primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("incarnation", sa.Integer, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("container", sa.Text, nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("job", "attempt", "rank", "incarnation", "place"),
        sqlite_autoincrement=True,
    )
