"""Forecasts of when a job starts and ends, by simulation from the live state."""
