"""Everything that Muster keeps in a database: SQLite or PostgreSQL, chosen by one URL.

`tables` declares the tables, `schema` their versions, `migrations` the steps between versions (Alembic).
`Database` owns the engines of SQLAlchemy and is shared by the stores: the event log with its snapshots,
the notes and the rank logs. `sqlite` and `postgres` hold what differs between the two. The election needs
PostgreSQL and has a session of its own.

SQLAlchemy takes up to a second of CPU to import, so callers import these modules where they open a database.
"""
