"""What-if studies: a grid of scenarios, each simulated several times, and their comparison."""
