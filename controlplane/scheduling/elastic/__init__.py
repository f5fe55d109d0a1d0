"""Gangs between their minimum and maximum size: start smaller, grow, replace lost ranks."""
