"""Commands on nodes, queues and the policy, and `muster top`."""
