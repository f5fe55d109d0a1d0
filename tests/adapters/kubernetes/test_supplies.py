"""Code, data, memory and TensorBoard in the pods of a job; and the code's commit on its way back."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.kubernetes.observe.pod_status import reports
from adapters.kubernetes.reconcile.plan import Ref, plan
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.supplies import CHECK_OUT, CODE_CONTAINER, commit_of
from controlplane.kinds.manifest.supplies_rules import problems
from controlplane.kinds.registry import kind_of, manifest_of, read_manifest
from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.model import events as e
from controlplane.model.cluster import Slot
from controlplane.model.errors import Rejected
from controlplane.model.phases import Phase

FULL = {
    "code": {"repo": "https://git.example/team/train.git", "ref": "main", "secret": "git-key"},
    "data": [
        {"claim": "imagenet", "path": "/data", "read_only": True},
        {"claim": "results", "path": "/results", "sub_path": "team"},
    ],
    "config_maps": [{"name": "hparams", "path": "/etc/hparams"}],
    "secrets": [{"name": "wandb", "path": "/etc/wandb"}],
    "env_from_secrets": ["wandb-key"],
    "shared_memory": "16Gi",
    "resources": {"rdma/hca": "1", "memory": "64Gi"},
    "tensorboard": {"log_dir": "/results/logs"},
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def native(supplies: Any, **role: Any) -> dict[str, Any]:
    worker = {"name": "worker", "replicas": 2, "gpus": 1, "image": "train:1", **role}
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"roles": [worker], "supplies": supplies},
    }


def placed(document: dict[str, Any]) -> Job:
    """The job of a manifest, with every rank on a node of its own."""
    submission = read_manifest(document)
    event = e.JobSubmitted("j1", submission.namespace, submission.name, submission.spec)
    job = begin(e.Recorded(1, 1.0, event))
    placement = tuple(Slot(f"n{rank}", (0,)) for rank in range(submission.spec.size))
    return evolve(job, e.Recorded(2, 2.0, e.GangPlaced("j1", 1, placement)))


def rendering(document: dict[str, Any], **changes: Any) -> Rendering:
    job = replace(placed(document), **changes)
    return Rendering(job, kind_of(job.spec))


def volumes(pod: dict[str, Any]) -> dict[str, Any]:
    by_name = {each["name"]: each for each in pod["spec"]["volumes"]}
    return {
        mount["mountPath"]: {k: v for k, v in by_name[mount["name"]].items() if k != "name"}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
    }


def test_everything_a_rank_needs_is_in_its_pod():
    pod = rendering(native(FULL)).pod(1)
    assert volumes(pod) == {
        "/code": {"emptyDir": {}},
        "/dev/shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
        "/data": {"persistentVolumeClaim": {"claimName": "imagenet"}},
        "/results": {"persistentVolumeClaim": {"claimName": "results"}},
        "/etc/hparams": {"configMap": {"name": "hparams"}},
        "/etc/wandb": {"secret": {"secretName": "wandb"}},
    }
    main = pod["spec"]["containers"][0]
    assert main["resources"] == {"limits": {"nvidia.com/gpu": 1, "memory": "64Gi", "rdma/hca": "1"}}
    assert main["envFrom"] == [{"secretRef": {"name": "wandb-key"}}]
    assert main["workingDir"] == "/code"
    by_path = {each["mountPath"]: each for each in main["volumeMounts"]}
    assert by_path["/data"]["readOnly"] is True
    assert by_path["/results"]["subPath"] == "team"
    (first,) = pod["spec"]["initContainers"]
    env = {each["name"]: each["value"] for each in first["env"]}
    assert (first["name"], env["REPO"], env["REF"]) == (
        CODE_CONTAINER,
        "https://git.example/team/train.git",
        "main",
    )


def test_what_the_template_has_already_stays():
    container = {
        "name": "main",
        "image": "train:1",
        "workingDir": "/app",
        "volumeMounts": [{"name": "mine", "mountPath": "/data/"}],
        "resources": {"requests": {"memory": "1Gi"}},
    }
    spec = {"containers": [container], "volumes": [{"name": "mine", "emptyDir": {}}]}
    document = native(FULL)
    document["spec"]["roles"] = [{"name": "worker", "template": {"spec": spec}}]
    pod = rendering(document).pod(0)
    main = pod["spec"]["containers"][0]
    assert [m["name"] for m in main["volumeMounts"] if m["mountPath"].startswith("/data")] == [
        "mine"
    ]
    assert main["resources"] == {"requests": {"memory": "1Gi"}, "limits": {"rdma/hca": "1"}}
    assert main["workingDir"] == "/app"


def test_a_job_that_asks_for_nothing_has_the_pods_that_it_had_before():
    pod = rendering(native({})).pod(0)
    assert "volumes" not in pod["spec"]
    assert "initContainers" not in pod["spec"]
    assert "workingDir" not in pod["spec"]["containers"][0]


def test_other_kinds_use_an_annotation():
    container = {"name": "pytorch", "image": "train:1"}
    template = {"spec": {"containers": [container]}}
    document: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "train",
            "annotations": {"muster.dev/supplies": json.dumps({"shared_memory": "8Gi"})},
        },
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
    pod = rendering(document).pod(0)
    assert volumes(pod) == {"/dev/shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}}
    for supplies, wrong in (("{", "not valid supplies"), ('{"shm": "8Gi"}', "unknown field")):
        document["metadata"]["annotations"]["muster.dev/supplies"] = supplies
        ((field, message),) = problems(read_manifest(document).spec)
        assert field == "metadata.annotations[muster.dev/supplies]"
        assert wrong in message


def test_the_native_form_is_written_as_it_was_read():
    job = placed(native(FULL))
    assert json.loads(json.dumps(manifest_of(job)["spec"]["supplies"])) == FULL


@pytest.mark.parametrize(
    ("supplies", "field"),
    [
        ({"code": {"repo": "--upload-pack=x"}}, "code.repo"),
        ({"code": {"repo": "https://h/r", "ref": "--help"}}, "code.ref"),
        ({"code": {"repo": "https://h/r", "path": "code"}}, "code.path"),
        ({"data": [{"claim": "a b", "path": "/x"}]}, "data[0]"),
        ({"data": [{"claim": "a", "path": "/x"}, {"claim": "b", "path": "/x/"}]}, "data[1]"),
        ({"shared_memory": "much"}, "shared_memory"),
        ({"shared_memory": "1Gi", "data": [{"claim": "a", "path": "/dev/shm"}]}, "data[0]"),
        ({"resources": {"nvidia.com/gpu": "1"}}, "resources"),
        ({"resources": {"rdma/hca": "lots"}}, "resources[rdma/hca]"),
        ({"env_from_secrets": ["A"]}, "env_from_secrets[0]"),
        ({"tensorboard": {"log_dir": "/logs"}}, "tensorboard.log_dir"),
    ],
)
def test_a_problem_is_reported_with_its_place(supplies: dict[str, Any], field: str):
    with pytest.raises(Rejected) as refusal:
        read_manifest(native(supplies))
    assert [problem.field for problem in refusal.value.problems] == [f"spec.supplies.{field}"]


# ---------------------------------------------------------------- the commit


def ended(pod: dict[str, Any], message: str, code: int = 0) -> dict[str, Any]:
    terminated = {"exitCode": code, "message": message}
    first = {"name": CODE_CONTAINER, "state": {"terminated": terminated}}
    return {**pod, "status": {"phase": "Running", "initContainerStatuses": [first]}}


def test_the_commit_is_reported_once_and_a_rank_with_another_one_too():
    shown = rendering(native(FULL))
    pods = {name: ended(shown.pod(rank), f"{COMMIT}\n") for rank, name in enumerate(shown.names)}
    (report,) = reports(shown.job, shown.names, pods)
    assert report.commits == ((0, COMMIT),)
    other = COMMIT[::-1]
    pods[shown.names[1]] = ended(shown.pod(1), other)
    (report,) = reports(shown.job, shown.names, pods)
    assert report.commits == ((0, COMMIT), (1, other))


@pytest.mark.parametrize(
    ("message", "code"), [("", 0), (COMMIT, 1), ("fatal: no", 0), (COMMIT + "00", 0)]
)
def test_only_the_name_of_a_commit_is_one(message: str, code: int):
    assert commit_of(ended(rendering(native(FULL)).pod(0), message, code)) == ""


def test_a_restart_gets_the_code_that_the_job_began_with():
    pod = rendering(native(FULL), commits=(COMMIT, COMMIT[::-1])).pod(0)
    env = {x["name"]: x["value"] for x in pod["spec"]["initContainers"][0]["env"]}
    assert env["REF"] == COMMIT


def git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null",
    }  # fmt: skip
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def checked_out(tmp_path: Path, repo: Path, ref: str) -> tuple[int, str, str]:
    """Runs the container's own script with the real git, its last words in a file of the test's."""
    code, words = tmp_path / f"code-{ref[:12].replace('/', '-')}", tmp_path / "words"
    code.mkdir(exist_ok=True)
    words.unlink(missing_ok=True)
    script = CHECK_OUT.replace("/tmp", str(tmp_path)).replace("/dev/termination-log", str(words))
    env = {
        "PATH": os.environ["PATH"], "REPO": f"file://{repo}", "REF": ref, "CODE": str(code),
        "SECRET": str(tmp_path / "none"), "SUBMODULES": "0",
    }  # fmt: skip
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
    content = (code / "train.py").read_text() if (code / "train.py").exists() else ""
    return done.returncode, words.read_text().strip() if words.exists() else "", content


def test_the_script_checks_out_branches_tags_and_commits_and_fails_for_others(tmp_path: Path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    commits = []
    for text in ("one", "two", "three"):
        (repo / "train.py").write_text(text)
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", text)
        commits.append(git(repo, "rev-parse", "HEAD"))
        if text == "two":
            git(repo, "tag", "v2")
    git(repo, "branch", "feature/x", commits[0])
    assert checked_out(tmp_path, repo, "HEAD") == (0, commits[2], "three")
    assert checked_out(tmp_path, repo, "main") == (0, commits[2], "three")
    assert checked_out(tmp_path, repo, "v2") == (0, commits[1], "two")
    assert checked_out(tmp_path, repo, "feature/x") == (0, commits[0], "one")
    # A server need not hand out a commit that no branch ends in; then the history is looked through.
    assert checked_out(tmp_path, repo, commits[1]) == (0, commits[1], "two")
    assert checked_out(tmp_path, repo, commits[0][:10]) == (0, commits[0], "one")
    code, words, _ = checked_out(tmp_path, repo, "no-such-branch")
    assert code != 0
    assert words == ""
    # A container that is started again finds what it left, and the newest of the branch.
    (repo / "train.py").write_text("four")
    git(repo, "commit", "-q", "-a", "-m", "four")
    assert checked_out(tmp_path, repo, "main")[2] == "four"


# ---------------------------------------------------------------- TensorBoard


def test_a_board_reads_the_claim_that_holds_the_log_folder():
    shown = rendering(native(FULL))
    planned = plan(shown, {}, lambda: ("", ""))
    (board,) = [each for each in planned.create if each["kind"] == "Deployment"]
    pod = board["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "results"
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "logs", "mountPath": "/results", "readOnly": True, "subPath": "team"}
    ]
    assert "/results/logs" in pod["containers"][0]["command"]
    labels = board["spec"]["template"]["metadata"]["labels"]
    assert "muster.dev/job-id" not in labels, "its pod is no rank"
    services = {d["metadata"]["name"]: d for d in planned.create if d["kind"] == "Service"}
    assert services["train-tensorboard"]["spec"]["selector"] == labels


def test_a_board_stays_when_the_job_has_ended_and_goes_when_it_is_deleted():
    shown = rendering(native(FULL))
    kinds = ("Deployment", "Service")
    made = plan(shown, {}, lambda: ("", "")).create
    there = {Ref(d["kind"], d["metadata"]["name"]): d for d in made if d["kind"] in kinds}
    over = rendering(native(FULL), phase=Phase.SUCCEEDED)
    assert plan(over, there, lambda: ("", "")).delete == []
    gone = rendering(native(FULL), phase=Phase.SUCCEEDED, deleting=True)
    assert set(plan(gone, there, lambda: ("", "")).delete) == set(there)
