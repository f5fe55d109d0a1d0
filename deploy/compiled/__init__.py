"""The core as shared libraries: which modules, how they are made, and what C they need besides."""
