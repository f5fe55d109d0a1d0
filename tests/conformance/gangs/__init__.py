"""Gang scenarios (format gang-scenarios/1) on the real scheduler and the real engine."""
