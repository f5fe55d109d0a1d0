"""Headers of every answer. A separate module, so that a client need not import the server."""

# Only the operator needs to know which program and release answers.
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "muster"}

# The server's clock, which differs from the client's where time runs fast.
TIME_HEADER = "Muster-Time"

# The position and the time of the event after which the answer was true.
POSITION_HEADER = "Muster-Position"
AT_HEADER = "Muster-At"
