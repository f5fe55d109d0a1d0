"""The folder of reference data next to the repository, where there is one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shared(*names: str) -> Path:
    """A file or folder of the reference data; the test is skipped where it is absent."""
    stated = os.environ.get("MUSTER_SHARED")
    above = [folder / "shared" for folder in ROOT.parents]
    for folder in [Path(stated)] if stated else above:
        path = folder.joinpath(*names)
        if path.exists():
            return path
    pytest.skip(f"no {'/'.join(names)} in a folder named shared next to the repository")
