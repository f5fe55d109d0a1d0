"""The manifests as kustomize renders them."""

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
FOLDERS = sorted(
    str(p.parent.relative_to(MANIFESTS)) for p in MANIFESTS.rglob("kustomization.yaml")
)


@lru_cache
def rendered(folder: str) -> list[dict[str, Any]]:
    """All documents of an overlay; skips where there is no kubectl to render them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl to render with; `make cluster-up` builds one and prints its path")
    done = subprocess.run(
        [kubectl, "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(folder: str, kind: str, name: str = "muster") -> dict[str, Any]:
    (document,) = [
        each
        for each in rendered(folder)
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return document
