"""The assembled model: gangs on devices, faults, pools, telemetry."""
