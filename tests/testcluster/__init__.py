"""The parts of the test cluster that can be tried without one."""
