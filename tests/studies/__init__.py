"""Tests of the studies room."""
