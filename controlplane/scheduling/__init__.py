"""Who runs next, and where: pure functions over a snapshot of the world."""
