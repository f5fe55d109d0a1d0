"""Virtual time on SimPy."""
