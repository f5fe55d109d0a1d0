"""The folder of reference data beside the repository, where there is one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shared(*names: str) -> Path:
    """A file or folder of the reference data; the test is skipped where it is absent."""
    said = os.environ.get("MUSTER_SHARED")
    above = [folder / "shared" for folder in ROOT.parents]
    for folder in [Path(said)] if said else above:
        found = folder.joinpath(*names)
        if found.exists():
            return found
    pytest.skip(f"no {'/'.join(names)} in a folder named shared beside the repository")
