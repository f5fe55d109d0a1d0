"""Tests of the kinds, one file a kind."""
