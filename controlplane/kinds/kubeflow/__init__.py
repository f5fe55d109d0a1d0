"""Kinds of the training operator: TFJob, PyTorchJob, MXJob, XGBoostJob, PaddleJob, JAXJob."""
