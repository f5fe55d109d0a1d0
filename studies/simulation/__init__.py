"""One simulated run: a workload, the real control plane and a simulated cluster."""
