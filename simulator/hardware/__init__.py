"""The hardware catalogue: GPUs, links inside a node, networks, hosts and servers, as values."""
