"""TrainJob of the Kubeflow Trainer, and its runtimes."""
