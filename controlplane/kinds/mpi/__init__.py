"""MPIJob in all its versions, and HostfileJob."""
