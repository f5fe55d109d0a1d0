"""`muster`: the table of commands, and the last word on whatever went wrong.

A command's module is imported when the command is used, so that `muster list` does not wait for
what only `muster up` needs.
"""

import errno
import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from cli.complaints import FAILED, INTERRUPTED, Complaint
from cli.settings import read_settings, reason

PROGRAM = "muster"
STDOUT = 1


class Entry(NamedTuple):
    module: str
    attribute: str
    # In one line, because the module that says more is not loaded for the overview.
    help: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Jobs": {
        "submit": Entry("cli.submit", "submit", "Submit a manifest, or a job made from flags."),
        "convert": Entry("cli.convert", "convert", "Show a manifest in another form."),
        "list": Entry("cli.jobs", "list_command", "List jobs."),
        "get": Entry("cli.jobs", "get", "Show one job in full."),
        "manifest": Entry("cli.manifests", "manifest", "Show a job as its own kind shows it."),
        "told": Entry("cli.manifests", "told", "Show what a rank is told."),
        "why": Entry("cli.jobs", "why", "Say why a job waits, restarts or ended."),
        "wait": Entry("cli.jobs", "wait", "Wait for the end of jobs."),
        "logs": Entry("cli.job_logs", "logs", "Show what the ranks of a job wrote."),
        "tensorboard": Entry("cli.tensorboard", "tensorboard", "Say where to see its TensorBoard."),
        "attach": Entry("cli.attach", "attach", "Run a command beside a rank, in its pod."),
        "events": Entry("cli.job_events", "events", "Show what happened to a job, or at all."),
        "cancel": Entry("cli.changes", "cancel", "Stop jobs for good and keep their record."),
        "suspend": Entry("cli.changes", "suspend", "Stop jobs until they are resumed."),
        "resume": Entry("cli.changes", "resume", "Let suspended jobs queue again."),
        "scale": Entry("cli.changes", "scale", "Change the number of replicas of a role."),
        "amend": Entry("cli.changes", "amend", "Change the limits of a job."),
        "delete": Entry("cli.changes", "delete", "Stop jobs if they run, and forget them."),
        "prune": Entry("cli.changes", "prune", "Delete jobs that finished some time ago."),
    },
    "Cluster": {
        "top": Entry("cli.top", "top", "Show who uses the GPUs, by node or by job."),
        "node": Entry("cli.cluster", "node", "List nodes, and take them out of use."),
        "queue": Entry("cli.cluster", "queue", "List queues and set their quotas."),
        "policy": Entry("cli.policy", "policy", "Show and change how the cluster is scheduled."),
    },
    "Control plane and log": {
        "up": Entry("cli.serve", "up", "Start the control plane with everything embedded."),
        "crds": Entry("cli.crds", "crds", "Print what a Kubernetes cluster needs to take jobs."),
        "log": Entry("cli.log", "log", "Verify, export, import and measure the event log."),
        "replay": Entry("cli.replay", "replay", "Show the world at any past instant."),
        "fork": Entry("cli.fork", "fork_command", "What would have happened otherwise."),
        "analyse": Entry("cli.analyse", "analyse_command", "What failed, where, and what it cost."),
    },
    "Simulator": {
        "sim": Entry("cli.sim", "sim", "Ask the simulator's physics, and check how true it is."),
    },
    "Studies": {
        "whatif": Entry("cli.whatif", "whatif", "Ask what another cluster or policy would do."),
    },
    "More": {
        "completion": Entry("cli.completion", "completion", "Print a shell completion script."),
        "version": Entry("cli.completion", "version", "Print the version."),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
ALIASES = {"ls": "list", "del": "delete"}


class _Enough(Exception):
    """Whoever reads our output has read enough, as `head` does."""


class LazyCommands(click.Group):
    """Knows its commands by the table and loads them on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = ENTRIES.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command), entry
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in ENTRIES and args[0] not in ALIASES and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=ENTRIES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would make a failure of it.
            raise _Enough from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])


@click.command(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 100 the job failed, 101 it was cancelled, "
    "102 there is no such job, 103 it can never fit.",
)
@click.version_option(package_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Run distributed deep-learning jobs: every job gets all of its workers, or starts none.

    \b
    First steps:
      muster up                                a control plane, a simulated cluster
      muster submit examples/pytorchjob.yaml   submit a job
      muster list --watch                      see what becomes of it
      muster why NAME                          and why
    """


def main() -> None:
    """The entry point: whatever happens, a line that helps and an exit code that tells."""
    _have_streams()
    sys.exit(run(sys.argv[1:]))


def _have_streams() -> None:
    """Whoever closed standard input or output gets nothing, and no file of ours in their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(place, "r" if number == 0 else "w"))  # noqa: SIM115


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        return _invoke(args)
    except Complaint as complaint:
        complaint.show()
        return complaint.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (_Enough, BrokenPipeError):
        _drop_the_rest()
        return 0
    except Exception as error:  # the last resort: nobody sees a trace
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _drop_the_rest()
            Complaint(f"not everything could be written: {reason(error)}").show()
            return FAILED
        if read_settings().debug:
            raise
        Complaint(
            f"this should not happen: {type(error).__name__}: {error}",
            hint="Please report it; MUSTER_DEBUG=1 shows where it comes from.",
        ).show()
        return FAILED


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _drop_the_rest() -> None:
    """What is left in the buffer would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def _invoke(args: list[str]) -> int:
    code = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
