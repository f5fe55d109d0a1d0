"""Predictions against published measurements, and the fit of the constants."""
