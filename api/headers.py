"""What the server says beside its answers. Apart, so that a client need not load a server."""

# Which program and release answers is nobody's business but the operator's.
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "muster"}

# The time that the server's clock shows, which is not the client's where time runs fast.
TIME_HEADER = "Muster-Time"
