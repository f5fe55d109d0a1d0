"""Code from a repository, checked out in real pods by the container that is made for it."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.testcluster import more_images, nodes
from deploy.testcluster.places import Place
from tests.cluster.control import Muster
from tests.cluster.kube import Kube
from tests.cluster.manifests import job, shell

WHO = {f"GIT_{who}_{what}": "someone@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip


class Repository:
    """A repository that pods fetch from, over git's own protocol."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self.url = folder, url
        self._git("init", "-q", "--initial-branch=main", ".")

    def commit(self, text: str) -> str:
        (self._folder / "version").write_text(text)
        self._git("add", "version")
        self._git("commit", "-q", "-m", text)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        env = {**os.environ, **WHO}
        done = subprocess.run(
            ["git", *words], cwd=self._folder, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout


@pytest.fixture
def repository(place: Place, tmp_path: Path) -> Iterator[Repository]:
    with socket.socket() as free:
        free.bind((place.gateway, 0))
        port = free.getsockname()[1]
    (tmp_path / "train").mkdir()
    words = ["--export-all", f"--base-path={tmp_path}", f"--listen={place.gateway}"]
    daemon = subprocess.Popen(["git", "daemon", *words, f"--port={port}", str(tmp_path)])
    yield Repository(tmp_path / "train", f"git://{place.gateway}:{port}/train")
    daemon.terminate()
    daemon.wait()


@pytest.fixture
def git_image(place: Place) -> str:
    archive = more_images.git(place)
    for node in nodes.known(place):
        more_images.load(place, node, archive, more_images.GIT)
    return more_images.GIT


async def test_a_branch_is_checked_out_and_a_restart_gets_the_same_commit(
    repository: Repository, git_image: str, muster: Muster, kube: Kube
) -> None:
    first = repository.commit("one")
    code = {"repo": repository.url, "ref": "main", "image": git_image}
    once_more = {"limit": 1, "backoff_s_first": 2.0, "backoff_s_max": 2.0}
    look = shell("cat version; echo; sleep 3; exit 1")
    manifest = job("synced", look, replicas=2, restart=once_more, supplies={"code": code})
    await muster.submit(manifest)
    event = await muster.until_event("synced", "CodeResolved")
    assert event["payload"]["commit"] == first
    assert repository.commit("two") != first
    await muster.until_phase("synced", "Failed")
    path = "/v1/jobs/default/synced/logs"
    for attempt in ("1", "2"):
        for rank in ("0", "1"):
            lines = (await muster.get(path, attempt=attempt, rank=rank))["lines"]
            assert [line for line in lines if line] == ["one"], (attempt, rank)
    assert (await muster.job("synced"))["commits"] == [first]
    checked = (await muster.get(path, attempt="2", container="init-code"))["lines"]
    assert f"code is {first}" in checked


async def test_a_repository_that_is_not_there_fails_the_job_with_git_s_own_words(
    repository: Repository, git_image: str, muster: Muster, kube: Kube
) -> None:
    code = {"repo": f"{repository.url}-not", "ref": "main", "image": git_image}
    await muster.submit(job("unsynced", shell("true"), supplies={"code": code}))
    ended = await muster.until_phase("unsynced", "Failed")
    assert "init-code" in ended["job"]["message"]
    logs = await muster.get("/v1/jobs/default/unsynced/logs", container="init-code")
    assert any("fatal" in line for line in logs["lines"]), logs
