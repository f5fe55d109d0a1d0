"""Tests of what is particular to one adapter; what a port promises is in contracts/."""
