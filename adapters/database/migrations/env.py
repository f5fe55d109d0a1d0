"""Alembic's entry point: runs migrations on the connection that `schema.migrate` passes."""

from alembic import context

from adapters.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter a column in place: Alembic copies the table.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
