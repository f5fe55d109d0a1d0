"""Tests of owners of jobs and of dependencies between jobs."""
