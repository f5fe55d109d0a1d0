"""`muster submit tfjob|pytorchjob|mpijob`: a manifest made from flags, submitted as a file is."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.client.documents import Document
from cli.errors import WRONG_USAGE, CliError
from cli.jobs import job_flags
from cli.jobs.job_flags import Flags, Manifest, Resources
from cli.jobs.submission import submission_options, submit_documents
from cli.options import Pair, Span, namespace_option
from cli.output.tables import write_json, write_yaml

F = TypeVar("F", bound=Callable[..., Any])

COMMON: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--name",), {"required": True, "help": "The job's name."}),
    (("--image",), {"required": True, "help": "The image of every rank."}),
    (("--workers",), {"type": click.IntRange(0), "default": 1, "show_default": True}),
    (("--gpus",), {"type": click.IntRange(0), "default": 0, "help": "GPUs of each worker."}),
    (("--cpu",), {"default": "", "help": "CPUs of each worker, such as 4 or 500m."}),
    (("--memory",), {"default": "", "help": "Memory of each worker, such as 16Gi."}),
    (("--queue",), {"default": "", "help": "The job's queue."}),
    (("-p", "--priority"), {"default": "", "help": "low, normal, high, or a number."}),
    (
        ("--retry",),
        {"type": click.IntRange(0), "default": 0, "help": "Number of restarts after a failure."},
    ),
    (("--running-timeout",), {"type": Span(), "help": "Fail the job if it runs longer."}),
    (
        ("--ttl-after-finished",),
        {"type": Span(), "help": "Delete the job this long after its end."},
    ),
    (
        ("--clean-task-policy",),
        {"type": click.Choice(("None", "Running", "All")), "default": None},
    ),
    (("--suspend",), {"is_flag": True, "help": "Submit it suspended."}),
    (
        ("-e", "--env"),
        {"type": Pair(), "multiple": True, "help": "Environment variable of every rank."},
    ),
    (("-l", "--label"), {"type": Pair(), "multiple": True}),
    (("-a", "--annotation"), {"type": Pair(), "multiple": True}),
    (("--selector",), {"type": Pair(), "multiple": True, "help": "A label that nodes must have."}),
    (
        ("-d", "--data"),
        {
            "type": Pair(":", "claim:path"),
            "multiple": True,
            "help": "A persistent volume claim, and where to mount it.",
        },
    ),
    (("--working-dir",), {"default": "", "help": "Working directory of the command."}),
    (("--share-memory",), {"default": "", "help": "The size of /dev/shm, such as 2Gi."}),
    (
        ("--device",),
        {"type": Pair(), "multiple": True, "help": "An extended resource, such as rdma/hca=1."},
    ),
    (("--sync-source",), {"default": "", "help": "A git repository to check out first."}),
    (("--sync-ref",), {"default": "", "help": "Branch, tag or commit to check out."}),
    (("--sync-secret",), {"default": "", "help": "Secret with an SSH key or password."}),
    (("--tensorboard",), {"is_flag": True, "help": "Run a TensorBoard on --logdir."}),
    (("--logdir",), {"default": "", "help": "Log directory: a path in a claim of --data."}),
    (("--image-pull-policy",), {"type": click.Choice(("Always", "IfNotPresent", "Never"))}),
    (("--dry-run",), {"is_flag": True, "help": "Print the manifest; submit nothing."}),
)


def common_options(command: F) -> F:
    wrapped = click.argument("command", nargs=-1, type=click.UNPROCESSED)(command)
    wrapped = submission_options(namespace_option(wrapped))
    for names, settings in reversed(COMMON):
        wrapped = click.option(*names, **settings)(wrapped)
    return wrapped


@click.command(short_help="Submit a TensorFlow job.")
@common_options
@click.option("--ps", type=click.IntRange(0), default=0, help="Number of parameter servers.")
@click.option("--ps-image", default="", help="Image of the parameter servers. Default: --image.")
@click.option("--ps-gpus", type=click.IntRange(0), default=0)
@click.option("--ps-cpu", default="")
@click.option("--ps-memory", default="")
@click.option("--chief", is_flag=True, help="Add a chief; the job ends when the chief ends.")
@click.option("--evaluator", is_flag=True, help="Add an evaluator.")
@click.option("--success-policy", type=click.Choice(("chief-worker", "all-workers")))
def tfjob(
    ps: int,
    ps_image: str,
    ps_gpus: int,
    ps_cpu: str,
    ps_memory: str,
    chief: bool,
    evaluator: bool,
    success_policy: str | None,
    **given: Any,
) -> None:
    """Submit a TensorFlow job: workers, and optionally parameter servers.

    \b
    Examples:
      muster submit tfjob --name mnist --workers 2 --gpus 1 \\
          --image tf:2.15 -- python mnist.py
      muster submit tfjob --name wide --workers 4 --ps 2 --image tf:2.15 \\
          --dry-run -o yaml -- "python wide.py --batch-size 128"
    """
    manifest = job_flags.tfjob(
        _flags(given),
        ps=ps,
        ps_image=ps_image,
        ps_resources=Resources(ps_gpus, ps_cpu, ps_memory),
        chief=chief,
        evaluator=evaluator,
        all_workers=success_policy == "all-workers",
    )
    _submit("tfjob", manifest, given)


@click.command(short_help="Submit a PyTorch job.")
@common_options
@click.option("--nproc-per-node", default="", help="Processes per rank: a number, auto or gpu.")
def pytorchjob(nproc_per_node: str, **given: Any) -> None:
    """Submit a PyTorch job. --workers includes the master.

    \b
    Examples:
      muster submit pytorchjob --name bert --workers 4 --gpus 8 --retry 3 \\
          --image pt:2.4 -- torchrun train.py
    """
    _submit("pytorchjob", job_flags.pytorchjob(_flags(given), nproc_per_node=nproc_per_node), given)


@click.command(short_help="Submit an MPI or Horovod job.")
@common_options
def mpijob(**given: Any) -> None:
    """Submit an MPI or Horovod job: a launcher runs the command, which uses the workers.

    \b
    Examples:
      muster submit mpijob --name resnet --workers 2 --gpus 8 \\
          --image horovod:0.28 -- mpirun -np 16 python resnet.py
    """
    _submit("mpijob", job_flags.mpijob(_flags(given)), given)


def _flags(given: dict[str, Any]) -> Flags:
    return Flags(
        name=given["name"],
        namespace=given["namespace"],
        image=given["image"],
        workers=given["workers"],
        command=_command(given["command"]),
        worker=Resources(given["gpus"], given["cpu"], given["memory"]),
        queue=given["queue"],
        priority=given["priority"],
        retry=given["retry"],
        running_timeout_s=_whole(given["running_timeout"]),
        ttl_s=_whole(given["ttl_after_finished"]),
        clean_task_policy=given["clean_task_policy"] or "",
        suspend=given["suspend"],
        working_dir=given["working_dir"],
        share_memory=given["share_memory"],
        image_pull_policy=given["image_pull_policy"] or "",
        env=dict(given["env"]),
        labels=dict(given["label"]),
        annotations=dict(given["annotation"]),
        selector=dict(given["selector"]),
        data=dict(given["data"]),
        supplies=_supplies(given),
    )


def _supplies(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that only an annotation can hold; empty if none was given."""
    supplies: dict[str, Any] = {}
    if given["device"]:
        supplies["resources"] = dict(given["device"])
    if given["sync_source"]:
        code = {"repo": "sync_source", "ref": "sync_ref", "secret": "sync_secret"}
        supplies["code"] = {key: given[flag] for key, flag in code.items() if given[flag]}
    if given["tensorboard"]:
        if not given["logdir"]:
            message = "--tensorboard needs --logdir, a path in a claim of --data"
            raise CliError(message, exit_code=WRONG_USAGE)
        # TensorBoard must mount the claim that holds the event files.
        supplies["data"] = [{"claim": claim, "path": path} for claim, path in given["data"]]
        supplies["tensorboard"] = {"log_dir": given["logdir"]}
    return supplies


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command; a single word with blanks is a shell command line, as in arena."""
    return ("sh", "-c", words[0]) if len(words) == 1 and " " in words[0] else words


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _submit(kind: str, manifest: Manifest, given: dict[str, Any]) -> None:
    if given["dry_run"]:
        (write_json if given["output"] == "json" else write_yaml)(manifest)
        return
    submit_documents(
        [Document(manifest, "")],
        url=given["url"],
        plan=given["plan"],
        wait=given["wait"],
        output=given["output"],
    )
