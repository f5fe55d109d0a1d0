"""Simulations that answer questions: the real engine on the simulator, in virtual time."""
