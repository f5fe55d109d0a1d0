"""The past over HTTP: events, event streams, the state at any instant, incidents."""
