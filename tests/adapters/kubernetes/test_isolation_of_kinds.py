"""Errors thrown from every kind, in every version, at random: only the job concerned suffers.

Each world is a whole control plane on the fake Kubernetes: engine, adapter, operator and HTTP API. It runs one kind:
of each of its versions an odd job, for which one method of the kind raises from some moment on, and a twin of it;
and one job of another kind. Method and moment come from the seed, which every failure names.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import yaml

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.cluster import KubernetesCluster, Options
from adapters.kubernetes.operator import event_backlog
from adapters.kubernetes.reconcile import reconciler
from adapters.kubernetes.render.ownership import owner_of
from api.app import make_app
from controlplane.kinds import registry
from controlplane.kinds.kind import Form, Kind
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text
from controlplane.model import events as e
from controlplane.model.spec import JobSpec
from controlplane.ports import Cluster
from tests.adapters.kubernetes.operator.bench import EXAMPLES, Bench, OneStore
from tests.api.http_calls import call, listening
from tests.fake_kubernetes import FakeKubernetes, Fate
from tests.fake_kubernetes.store import PODS

SEEDS = 1
SLOW_SEEDS = 12
# Names the method of its kind for which a job is odd; nothing else differs from its twin.
ODD = "isolation.example/odd"
# What the adapter or the operator asks of a kind for a job that lives, and of the form of its version.
METHODS = ("environments", "environment of a rank", "services", "files", "kept")
FORM_METHODS = ("read", "write", "status")
# Without these no rank can be started.
VITAL = ("environments", "environment of a rank", "services", "files")
# From when on a method raises: always, once the job runs, once it has ended, or now and then.
MOMENTS = ("start", "running", "ended", "sometimes")
SOMETIMES = 0.4
# Examples that do not run to a good end here: no device of the fake nodes says how much memory it has, arrays are no
# resources of the operator, the jobs of a chain need each other, and others are there to fail.
UNFIT = ("array", "chain", "gpu-sharing", "never-fits", "retries-exhausted")


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """An example of each version of each kind, the smallest that there is."""
    smallest: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        if path.stem in UNFIT:
            continue
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            key = (str(document.get("apiVersion")), str(document.get("kind")))
            if key not in registry.forms():
                continue
            if key not in smallest or _size(document) < _size(smallest[key]):
                smallest[key] = document
    return smallest


def _size(document: dict[str, Any]) -> int:
    return int(registry.read_manifest(document).spec.size)


MANIFESTS = manifests()
KINDS = sorted({kind for _, kind in MANIFESTS})


class Odd(NamedTuple):
    """What is wrong with an odd job."""

    method: str
    moment: str
    number: int

    def __str__(self) -> str:
        return f"{self.method}/{self.moment}/{self.number}"


class Thrower:
    """Raises for odd jobs in the method and from the moment that their annotation names."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.error = dice.choice((AssertionError, IndexError, KeyError, ValueError, OSError))
        self.armed: set[str] = set()
        self.thrown: list[str] = []

    def throw(self, method: str, annotations: dict[str, str]) -> None:
        odd = annotations.get(ODD, "")
        wrong, moment, _ = odd.split("/") if odd else ("", "", "")
        if wrong != method or not (moment in ("start", "sometimes") or odd in self.armed):
            return
        if moment == "sometimes" and self.dice.random() >= SOMETIMES:
            return
        self.thrown.append(odd)
        raise self.error(f"thrown by {method}")

    def plant(self, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
        """Has every method of the kind raise where it should."""

        def of_spec(method: str, function: Any) -> Any:
            def planted(given: Any, *rest: Any) -> Any:
                spec = given if isinstance(given, JobSpec) else given.spec
                self.throw(method, spec.annotations)
                return function(given, *rest)

            return planted

        def environments(gang: Any) -> Any:
            self.throw("environments", gang.spec.annotations)
            inner = kind.environments(gang)

            def of_rank(rank: int) -> Any:
                self.throw("environment of a rank", gang.spec.annotations)
                return inner(rank)

            return of_rank

        def form(each: Form) -> Form:
            def read(manifest: Any, findings: Any) -> Any:
                submission = each.read(manifest, findings)
                self.throw("read", submission.spec.annotations)
                return submission

            return each._replace(
                read=read,
                write=of_spec("write", each.write),
                status=of_spec("status", each.status),
            )

        planted = kind._replace(
            environments=environments,
            services=of_spec("services", kind.services),
            files=of_spec("files", kind.files),
            kept=of_spec("kept", kind.kept),
            forms=tuple(map(form, kind.forms)),
        )
        monkeypatch.setitem(registry._kinds, kind.name, planted)
        for each in planted.forms:
            monkeypatch.setitem(registry._forms, (each.version, kind.name), each)


class KubernetesBench(Bench):
    """A bench whose ranks are pods."""

    def __init__(self, api: FakeKubernetes) -> None:
        super().__init__(api)
        self.pods_of: KubernetesCluster | None = None

    def _cluster(self, connection: Connection) -> Cluster:
        async def name() -> str:
            return "test"

        self.pods_of = KubernetesCluster(
            connection,
            name,
            Options(resync_s=60.0, lost_after_s=0.05),
            owner_of=owner_of,
            on_planned=lambda job, plan: self.operator.planned(job, plan),
        )
        return self.pods_of

    async def stop(self) -> None:
        if self.pods_of is not None:
            await self.pods_of.close()
        await super().stop()

    @property
    def jobs(self) -> dict[str, Job]:
        assert self.control.engine is not None
        return self.control.engine.world.jobs

    def named(self, name: str) -> Job | None:
        assert self.control.engine is not None
        return self.control.engine.world.job("default", name)


@asynccontextmanager
async def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesBench]:
    monkeypatch.setattr(reconciler, "AGAIN_S_FIRST", 0.01)
    async with OneStore(folder) as api:
        for number in range(40):
            api.kubelets.add_node(f"node-{number}", 8)
        api.kubelets.fate = lambda pod: Fate(0.2, 0)
        made = KubernetesBench(api)
        try:
            await made.start()
            yield made
        finally:
            await made.stop()


def a_job(form: tuple[str, str], name: str, odd: str = "") -> dict[str, Any]:
    made = copy.deepcopy(MANIFESTS[form])
    annotations = {**(made["metadata"].get("annotations") or {})}
    if odd:
        annotations[ODD] = odd
    made["metadata"] = {**made["metadata"], "name": name, "namespace": "default"}
    made["metadata"]["annotations"] = annotations
    return made


def with_other_image(document: Any) -> Any:
    """The document with another image everywhere, which no job that lives can be given."""
    if isinstance(document, dict):
        return {
            key: "example.com/other:2" if key == "image" else with_other_image(value)
            for key, value in document.items()
        }
    return [with_other_image(each) for each in document] if isinstance(document, list) else document


class Cast(NamedTuple):
    odd: dict[str, Odd]
    odd_documents: list[dict[str, Any]]
    good_documents: list[dict[str, Any]]


def cast(kind: str, seed: int, dice: Random) -> Cast:
    """Of each version an odd job and a twin of it, and one job of another kind.

    Seeds take turns with the methods, so that a few of them have had each.
    """
    methods = (*METHODS, *FORM_METHODS)
    first = seed + Random(kind).randrange(len(methods))
    odd, odd_documents, good = dict[str, Odd](), list[dict[str, Any]](), list[dict[str, Any]]()
    for number, form in enumerate(key for key in MANIFESTS if key[1] == kind):
        method = methods[(first + number) % len(methods)]
        wrong = Odd(method, "start" if method == "read" else dice.choice(MOMENTS), number)
        odd[f"odd-{number}"] = wrong
        odd_documents.append(a_job(form, f"odd-{number}", str(wrong)))
        good.append(a_job(form, f"twin-{number}"))
    other = dice.choice([key for key in sorted(MANIFESTS) if key[1] != kind])
    good.append(a_job(other, "other"))
    return Cast(odd, odd_documents, good)


async def check_world(
    kind: str, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Thrower:
    print(f"kind {kind}, seed {seed}")
    dice = Random(f"kinds/{kind}/{seed}")
    thrower, players = Thrower(dice), cast(kind, seed, dice)
    with monkeypatch.context() as patched:
        thrower.plant(patched, registry._kinds[kind])
        async with world(folder, patched) as bench:
            await play(bench, players, thrower)
            await check_views(bench, players)
            await check_deletion(bench, players)
            assert bench.is_up
            recorded = {type(each.event) for each in bench.log.events}
            assert not recorded & {e.EngineFailed, e.JobQuarantined}
    return thrower


async def play(bench: KubernetesBench, players: Cast, thrower: Thrower) -> None:
    """Runs all jobs to their end; each ends as it should."""
    for document in (*players.odd_documents, *players.good_documents):
        bench.apply(document)
    edited = set[str]()

    def is_over() -> bool:
        for name, odd in players.odd.items():
            job = bench.named(name)
            if job is None:
                continue
            if (job.running_at is not None and odd.moment == "running") or job.finished:
                thrower.armed.add(str(odd))
            if odd.method == "write" and name not in edited:
                edited.add(name)
                document = players.odd_documents[odd.number]
                bench.edit(document, with_other_image(document["spec"]))
        return all(is_settled(bench, document, players) for document in bench_documents(players))

    try:
        await bench.until(is_over)
    except TimeoutError:
        states = {
            each["metadata"]["name"]: (bench.state(each), in_short(bench, each))
            for each in bench_documents(players)
            if not is_settled(bench, each, players)
        }
        raise AssertionError(f"not settled: {states} {players.odd}") from None
    for document in players.good_documents:
        assert bench.state(document) == "Succeeded", document["metadata"]["name"]
    for document in players.odd_documents:
        check_odd(bench, document, players.odd[document["metadata"]["name"]])


def in_short(bench: KubernetesBench, document: dict[str, Any]) -> tuple[object, ...]:
    job = bench.named(document["metadata"]["name"])
    return (
        () if job is None else (job.phase, job.reason, job_text(job), job.wait_reason, job.obstacle)
    )


def bench_documents(players: Cast) -> list[dict[str, Any]]:
    return [*players.odd_documents, *players.good_documents]


def is_settled(bench: KubernetesBench, document: dict[str, Any], players: Cast) -> bool:
    """Whether a resource shows how its job ended, and nothing runs any more."""
    name = document["metadata"]["name"]
    if name in players.odd and players.odd[name].method == "read":
        return bench.state(document) in ("Refused", "Succeeded")
    job = bench.named(name)
    if job is None or not job.finished or job.live_attempt is not None:
        return False
    resource = bench.resource(document)
    seen = resource["status"]["muster"]["observedGeneration"] if "status" in resource else 0
    return bench.state(document) == job.phase.value and seen == resource["metadata"]["generation"]


def check_odd(bench: KubernetesBench, document: dict[str, Any], odd: Odd) -> None:
    job = bench.named(document["metadata"]["name"])
    message = (bench.resource(document).get("status") or {})["muster"].get("message", "")
    if odd.method == "read":
        assert job is None
        assert bench.state(document) == "Refused"
        assert "thrown by read" in message
        return
    assert job is not None
    if odd.method in VITAL and odd.moment == "start":
        assert job.reason == "platform_error", odd
    assert job.phase.value == "Succeeded" or job.reason == "platform_error", (odd, job.reason)
    if job.reason:
        assert odd.method in VITAL, odd
        assert f"thrown by {odd.method}" in job_text(job), odd
    if odd.method == "status" and odd.moment == "start":
        assert "cannot be shown" in message
    if odd == ("write", "start", odd.number) and _has_image(document):
        assert any("thrown by write" in each for each in bench.messages("NotApplied"))


def _has_image(document: dict[str, Any]) -> bool:
    return bool(with_other_image(document["spec"]) != document["spec"])


# A view of a job, and the methods of its kind that it needs.
VIEWS: dict[str, tuple[str, ...]] = {
    "": (),
    "/why": (),
    "/manifest": ("write", "status", "read"),
    "/ranks/0": ("environments", "environment of a rank"),
}


async def check_views(bench: KubernetesBench, players: Cast) -> None:
    """A view that cannot be rendered is an error of that view alone."""
    assert bench.pods_of is not None
    async with listening(make_app(bench.control, bench.pods_of)) as url:
        status, page = await call(url, "GET", "/v1/jobs")
        assert status == 200
        good = [each["metadata"]["name"] for each in players.good_documents]
        assert set(good) <= {each["name"] for each in page["items"]}
        for name in (*good, *players.odd):
            job, odd = bench.named(name), players.odd.get(name)
            if job is None:
                continue
            for view, needs in VIEWS.items():
                status, answer = await call(url, "GET", f"/v1/jobs/default/{name}{view}")
                if odd is not None and odd.method in needs and odd.moment != "sometimes":
                    assert (status, answer["code"]) == (500, "platform_error"), (odd, view)
                    assert f"thrown by {odd.method}" in answer["detail"]
                elif odd is None or odd.method not in needs:
                    assert status == 200, (odd, view, answer)
                if view == "/why" and job.reason:
                    assert "thrown by" in answer["summary"]
        for document in players.odd_documents:
            if players.odd[document["metadata"]["name"]].method == "read":
                status, answer = await call(url, "POST", "/v1/jobs", document)
                assert (status, answer["code"]) == (500, "platform_error")


async def check_deletion(bench: KubernetesBench, players: Cast) -> None:
    """Whatever raises, a job whose resource is deleted goes, with all that it had."""
    for document in players.odd_documents:
        bench.delete(document)
    await bench.until(
        lambda: (
            not any(bench.named(name) for name in players.odd)
            and not any(_is_odd(pod, players) for pod in bench.api.store.all(PODS))
        )
    )


def _is_odd(pod: dict[str, Any], players: Cast) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each["name"] in players.odd for each in owners)


def test_every_version_of_every_kind_has_an_example() -> None:
    assert set(MANIFESTS) == set(registry.forms())


def test_all_that_a_kind_can_do_is_thrown_from() -> None:
    """A method that is added to a kind must be added here, or to the simulated cluster's suite."""
    methods = {name for name in Kind._fields if callable(getattr(registry.kinds()[0], name))}
    assert methods - {"duties"} == {*METHODS} - {"environment of a rank"}
    assert {"read", "write", "status", "modern"} < set(Form._fields)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_kind_that_raises_costs_only_the_job_concerned(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_world(kind, seed, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_kind_that_raises_costs_only_the_job_concerned_in_many_worlds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thrown = set[str]()
    for seed in range(SEEDS, SEEDS + SLOW_SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        thrower = await check_world(kind, seed, folder, monkeypatch)
        thrown |= {each.split("/")[0] for each in thrower.thrown}
    assert len(thrown) > len(METHODS), thrown


async def test_an_event_that_cannot_be_shown_hides_no_other_and_outlives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MPIJob's events are rendered from its status; what raises there must not end the operator."""
    monkeypatch.setattr(event_backlog, "GATHER_S", 0.05)
    thrower = Thrower(Random(0))
    thrower.plant(monkeypatch, registry._kinds["MPIJob"])
    form = ("kubeflow.org/v2beta1", "MPIJob")
    odd = a_job(form, "odd", str(Odd("status", "start", 0)))
    good = a_job(form, "good")
    async with world(tmp_path, monkeypatch) as bench:
        bench.api.kubelets.fate = lambda pod: Fate(0.1, 1)
        for each in (odd, good):
            each["spec"].setdefault("runPolicy", {})["backoffLimit"] = 0
            bench.apply(each)
        await bench.until_state(good, "Failed")
        await bench.until_state(odd, "Failed")
        await bench.until(lambda: len(bench.messages("MPIJobFailed")) >= 1)
        await bench.stop()
        # What was written is forgotten, so that all of it is looked up in the log.
        for each in (odd, good):
            bench.api.store.merge(
                bench._stored(each),
                "default",
                each["metadata"]["name"],
                {"status": {"muster": {"position": 0}}},
            )
        await bench.start()
        await asyncio.sleep(0.3)
        await bench.until_idle()
        assert bench.is_up
        after = a_job(form, "after")
        bench.api.kubelets.fate = lambda pod: Fate(0.1, 0)
        bench.apply(after)
        await bench.until_state(after, "Succeeded")


async def test_a_change_that_cannot_be_handled_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of one job that the adapter cannot take in must not end the watch of all pods."""
    handled: Callable[..., None] = reconciler.JobReconciler.on_change
    thrown: list[str] = []

    def planted(self: Any, job_id: str, kind: str, change: Any) -> None:
        annotations = self._works[job_id].job.spec.annotations if job_id in self._works else {}
        if ODD in annotations:
            thrown.append(job_id)
            raise IndexError("thrown by on_change")
        handled(self, job_id, kind, change)

    monkeypatch.setattr(reconciler.JobReconciler, "on_change", planted)
    form = ("muster.dev/v1", "Job")
    odd, good = a_job(form, "odd", "x/start/0"), a_job(form, "good")
    async with world(tmp_path, monkeypatch) as bench:
        bench.apply(odd)
        bench.apply(good)
        await bench.until_state(good, "Succeeded")
        await bench.until_state(odd, "Succeeded")
        assert thrown
        assert bench.is_up
