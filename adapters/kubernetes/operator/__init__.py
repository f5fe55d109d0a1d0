"""The operator: runs custom resources of the Kubeflow operators, and writes statuses and events."""
