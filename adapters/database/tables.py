"""The tables, declared once for SQLite and PostgreSQL.

The columns of `events` are the fields of a `Row`, in the same order. A new field of a row
needs a column here and a migration in `migrations/versions`; a test compares both.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql

metadata = MetaData()

# Only a column of the type INTEGER is SQLite's own row number.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")
# The type json keeps every byte as it was written, and the hash chain depends on that; jsonb does not.
_JSON = Text().with_variant(postgresql.JSON(), "postgresql")

# There is no index of streams, which would slow down every append: SQLite scans ten million rows a second.
events = Table(
    "events",
    metadata,
    Column("position", _NUMBER, primary_key=True, autoincrement=False),
    Column("step", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("stream", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("payload", _JSON, nullable=False),
    Column("command", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

# One row: the end of the log, and the epoch of its leader.
head = Table(
    "head",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("position", _NUMBER, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

# `written` grows with every write, so that the oldest note is known.
notes = Table(
    "notes",
    metadata,
    Column("written", _NUMBER, Identity(always=True), primary_key=True),
    Column("book", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    UniqueConstraint("book", "key"),
    sqlite_autoincrement=True,
)

# Containers have the places 0, 1, ... in their pod; init containers have -1, -2, ...
rank_logs = Table(
    "rank_logs",
    metadata,
    Column("number", _NUMBER, Identity(always=True), primary_key=True),
    Column("job", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("incarnation", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("container", Text, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("job", "attempt", "rank", "incarnation", "place"),
    sqlite_autoincrement=True,
)

# Alembic's own table: one row with the version of the schema.
schema_version = Table(
    "alembic_version",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
