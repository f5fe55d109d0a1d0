"""Access to the engine: in this process, or on the leader."""
