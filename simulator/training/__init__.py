"""One gang that trains: input, compute, communicate, checkpoint, repeat."""
