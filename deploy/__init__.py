"""What it takes to run Muster: system packages, and a Kubernetes cluster to test on."""
