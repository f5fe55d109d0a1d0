"""Faults and their times: from a script, and at random from one seed."""

from simulator.faults.chance import chance_crashes, node_faults, rack_faults
from simulator.faults.model import Fault, FaultKind, FaultModel, Spot, Window
from simulator.faults.presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Fault",
    "FaultKind",
    "FaultModel",
    "Preset",
    "Spot",
    "Window",
    "chance_crashes",
    "node_faults",
    "rack_faults",
]
