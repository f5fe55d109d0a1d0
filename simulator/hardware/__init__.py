"""What clusters are made of, as values: GPUs, links inside a node, networks and hosts."""
