"""Standing in for the Kubeflow operators: their resources in, jobs run, statuses and events out."""
