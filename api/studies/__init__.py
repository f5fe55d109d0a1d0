"""Studies and forecasts over HTTP."""
