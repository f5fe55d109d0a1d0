"""`muster`: the table of commands, and the final handler of errors.

A command's module is imported when the command is used, so that `muster list` does not wait for the
imports that only `muster up` needs.
"""

import errno
import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from cli.errors import FAILED, INTERRUPTED, CliError
from cli.settings import read_settings, reason

PROGRAM = "muster"
STDOUT = 1


class Entry(NamedTuple):
    module: str
    attribute: str
    # One line here, because the overview does not load the module with the full help.
    help: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Jobs": {
        "submit": Entry("cli.jobs.submit", "submit", "Submit a manifest, or a job from flags."),
        "convert": Entry("cli.jobs.convert", "convert", "Show a manifest in another form."),
        "list": Entry("cli.jobs.jobs", "list_command", "List jobs."),
        "get": Entry("cli.jobs.jobs", "get", "Show one job in full."),
        "manifest": Entry(
            "cli.jobs.manifests", "manifest", "Show a job as a manifest with its status."
        ),
        "rank-env": Entry("cli.jobs.manifests", "rank_env", "Show the environment of a rank."),
        "why": Entry("cli.jobs.jobs", "why", "Explain why a job waits, restarted or ended."),
        "wait": Entry("cli.jobs.jobs", "wait", "Wait until jobs have finished."),
        "logs": Entry("cli.jobs.job_logs", "logs", "Show the logs of a job's ranks."),
        "tensorboard": Entry(
            "cli.jobs.tensorboard", "tensorboard", "Show how to reach a job's TensorBoard."
        ),
        "attach": Entry("cli.jobs.attach", "attach", "Run a command in the container of a rank."),
        "events": Entry(
            "cli.jobs.job_events", "events", "Show the events of a job or of the whole cluster."
        ),
        "cancel": Entry("cli.jobs.changes", "cancel", "Stop jobs and keep their record."),
        "suspend": Entry("cli.jobs.changes", "suspend", "Stop jobs until they are resumed."),
        "resume": Entry("cli.jobs.changes", "resume", "Queue suspended jobs again."),
        "retry": Entry("cli.jobs.changes", "retry", "Run failed indices of an array again."),
        "scale": Entry("cli.jobs.changes", "scale", "Change the number of replicas of a role."),
        "amend": Entry("cli.jobs.changes", "amend", "Change the limits of a job."),
        "rerun": Entry("cli.jobs.changes", "rerun", "Submit a job once more under another name."),
        "delete": Entry("cli.jobs.changes", "delete", "Stop jobs if they run, and remove them."),
        "prune": Entry("cli.jobs.changes", "prune", "Delete jobs that finished some time ago."),
    },
    "Cluster": {
        "top": Entry("cli.cluster.top", "top", "Show the use of the GPUs, by node or by job."),
        "node": Entry("cli.cluster.cluster", "node", "List, cordon and drain nodes."),
        "queue": Entry("cli.cluster.cluster", "queue", "List queues and set their quotas."),
        "policy": Entry(
            "cli.cluster.policy", "policy", "Show and change how the cluster is scheduled."
        ),
    },
    "Control plane and log": {
        "up": Entry("cli.server.up", "up", "Start the control plane with everything embedded."),
        "demo": Entry("cli.server.demo", "demo", "Show a busy simulated day in the browser."),
        "view": Entry(
            "cli.server.view", "view", "Show a log or a bundle in the browser, read-only."
        ),
        "crds": Entry(
            "cli.server.crds", "crds", "Print the custom resource definitions for Kubernetes."
        ),
        "log": Entry("cli.log.log", "log", "Verify, export, import and measure the event log."),
        "replay": Entry("cli.log.replay", "replay", "Show jobs, nodes and queues at a past time."),
        "fork": Entry("cli.log.fork", "fork_command", "Simulate what a change would have caused."),
        "analyse": Entry(
            "cli.log.analyse", "analyse_command", "Summarise failures by cause, node and user."
        ),
    },
    "Simulator": {
        "sim": Entry("cli.studies.sim", "sim", "Query and validate the performance model."),
    },
    "Studies": {
        "whatif": Entry(
            "cli.studies.whatif", "whatif", "Simulate a workload on another cluster or policy."
        ),
    },
    "More": {
        "completion": Entry("cli.completion", "completion", "Print a shell completion script."),
        "version": Entry("cli.completion", "version", "Print the version."),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
ALIASES = {"ls": "list", "del": "delete"}


class _ReaderClosed(Exception):
    """Raised when the reader of our output has closed it, as `head` does."""


class LazyCommands(click.Group):
    """A group that has its commands in a table and imports them on use."""

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
            # click would report a failure.
            raise _ReaderClosed from None

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
      muster demo                              see a busy simulated day in the browser
      muster up                                start a control plane and a simulated cluster
      muster submit examples/pytorchjob.yaml   submit a job
      muster list --watch                      watch it run
      muster why NAME                          see why it waits or ended
    """


def main() -> None:
    """The entry point: every error becomes a helpful line and an exit code."""
    _have_streams()
    sys.exit(run(sys.argv[1:]))


def _have_streams() -> None:
    """Open /dev/null for closed standard streams, so that no other file gets their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(place, "r" if number == 0 else "w"))  # noqa: SIM115


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _invoke(args)
    except CliError as cli_error:
        cli_error.show()
        return cli_error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (_ReaderClosed, BrokenPipeError):
        _drop_the_rest()
        return 0
    except Exception as error:  # last resort: show no stack trace
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _drop_the_rest()
            CliError(f"not everything could be written: {reason(error)}").show()
            return FAILED
        if read_settings().debug:
            raise
        CliError(
            f"this should not happen: {type(error).__name__}: {error}",
            hint="Please report it; MUSTER_DEBUG=1 shows where it comes from.",
        ).show()
        return FAILED


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _drop_the_rest() -> None:
    """Discard the output buffer, which would raise once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def _invoke(args: list[str]) -> int:
    code = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
