"""The event log: events, head and snapshots."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_JSON = sa.Text().with_variant(postgresql.JSON(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    head = op.create_table(
        "head",
        sa.Column(
            "one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False
        ),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(head, [{"one": 1, "position": 0, "hash": bytes(32), "epoch": 0}])
    op.create_table(
        "snapshots",
        sa.Column("position", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
