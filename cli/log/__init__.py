"""Commands on a log: verify, export, replay, fork, analyse."""
