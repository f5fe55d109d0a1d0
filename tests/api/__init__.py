"""The HTTP API, against a real engine on a log in memory."""
