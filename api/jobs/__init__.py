"""Jobs over HTTP: submit, list, read, change, convert."""
