"""A kind that raises for one job fails that job after a few tries; the others run as ever."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.kubernetes.reconcile import reconciler
from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import kind_of
from controlplane.messages import job_text
from controlplane.model import commands as c
from controlplane.model.spec import JobSpec
from tests.fake_kubernetes import FakeKubernetes, Fate
from tests.fake_kubernetes.control import cluster_of, control_plane, spec

# By this the job is known for which everything raises.
ODD = 7
METHODS = [
    name for name, value in zip(Kind._fields, kind_of(spec()), strict=True) if callable(value)
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with cluster_of(tmp_path) as api:
        yield api


def raising(method: str) -> Callable[[JobSpec], Kind]:
    def raises(*args: Any, **named: Any) -> Any:
        raise IndexError(f"{method} of this kind")

    def planted(spec: JobSpec) -> Kind:
        kind = kind_of(spec)
        return kind._replace(**{method: raises}) if spec.priority == ODD else kind

    return planted


def test_a_kind_has_methods_to_raise_from() -> None:
    assert "environments" in METHODS


@pytest.mark.parametrize("method", METHODS)
async def test_a_kind_that_raises_fails_its_job_and_no_other(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(reconciler, "AGAIN_S_FIRST", 0.01)
    monkeypatch.setattr(reconciler, "kind_of", raising(method))
    api.kubelets.fate = lambda pod: Fate(0.1, 0)
    async with control_plane(api) as plane:
        await plane.submit("odd", spec(priority=ODD))
        await plane.submit("good", spec())
        await plane.until_phase("good", "Succeeded")
        await plane.until(lambda: plane.job("odd") is not None and plane.job("odd").finished)
        odd = plane.job("odd")
        assert odd is not None
        assert odd.reason in (None, "platform_error")
        if odd.reason:
            assert job_text(odd) == f"kubernetes: IndexError: {method} of this kind"
        # Whatever it had is given back.
        await plane.until(lambda: plane.job("odd").live_attempt is None)


async def test_a_job_that_breaks_while_it_runs_is_stopped_without_its_kind(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "AGAIN_S_FIRST", 0.01)
    async with control_plane(api) as plane:
        await plane.submit("odd", spec(priority=ODD))
        await plane.until_phase("odd", "Running")
        monkeypatch.setattr(reconciler, "kind_of", raising("environments"))
        await plane.ask(c.SuspendJob(namespace="default", name="odd"))
        await plane.until(lambda: plane.job("odd").finished)
        await plane.until(lambda: plane.job("odd").live_attempt is None)
        await plane.until(lambda: not plane.pods)
        assert plane.job("odd").reason == "platform_error"
