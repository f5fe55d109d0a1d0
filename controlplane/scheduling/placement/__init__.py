"""Which nodes and devices a gang gets: fit, packing, topology, fractions of devices."""
