"""The whole system in virtual time, from a seed, with faults at every port."""
