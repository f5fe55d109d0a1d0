"""Reading requests: bodies, idempotency keys, pages, validation errors."""
