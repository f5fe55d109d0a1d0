"""The scheduling suites of Kueue, KAI, kube-scheduler and knavigator on our engine."""
