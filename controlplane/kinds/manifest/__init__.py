"""Parts that all manifests share: parsing, validation, pod templates, annotations."""
