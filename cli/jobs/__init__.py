"""Commands on jobs: submit, list, get, why, logs, cancel and the like."""
