"""Options and arguments that many commands share."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from cli.output.tables import FORMATS
from cli.output.times import parse_span
from cli.settings import read_settings

F = TypeVar("F", bound=Callable[..., Any])


class JobName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def url_option(command: F) -> F:
    return click.option("--url", metavar="URL", help="URL of the server. Default: MUSTER_URL.")(
        command
    )


def namespace_option(command: F) -> F:
    option = click.option(
        "-n",
        "--namespace",
        default=lambda: read_settings().namespace,
        show_default="MUSTER_NAMESPACE, or default",
        help="Namespace of job names that have none.",
    )
    return option(command)


def output_option(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats or FORMATS),
        default="table" if "table" in (formats or FORMATS) else formats[0],
        show_default=True,
        help="Output format.",
    )


def all_namespaces_option(command: F) -> F:
    return click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")(
        command
    )


def parse_job(text: str, namespace: str) -> JobName:
    """Parse NAME, in the given namespace, or NAMESPACE/NAME."""
    first, slash, rest = text.partition("/")
    name = JobName(first, rest) if slash else JobName(namespace, text)
    if not name.namespace or not name.name or "/" in name.name:
        raise click.BadParameter(f"{text!r} is not a job name; write NAME or NAMESPACE/NAME.")
    return name


def complete_job(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return completions for a job's name; none if the server does not answer quickly."""
    from cli.completion import job_names

    return [CompletionItem(name) for name in job_names(ctx.params.get("namespace"), incomplete)]


job_argument = click.argument("job", shell_complete=complete_job)
jobs_argument = click.argument("jobs", nargs=-1, required=True, shell_complete=complete_job)


def _or_usual_log(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    return read_settings().db if value is None else value


# The LOG argument; by default the log of `muster up`: MUSTER_DB, or muster.db in the data folder.
log_argument = click.argument("source", metavar="[LOG]", required=False, callback=_or_usual_log)


class Span(click.ParamType[float]):
    """A duration such as 90s, 10m or 7d, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return value if isinstance(value, float) else parse_span(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """KEY=VALUE, or with another separator, as a pair."""

    def __init__(self, separator: str = "=", name: str = "key=value") -> None:
        self.separator = separator
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, separator, rest = str(value).partition(self.separator)
        if not key or not separator:
            self.fail(f"{value!r} is not of the form {self.name}.", param, ctx)
        return key, rest


def dry_run_option(command: F) -> F:
    """Add `--dry-run`."""
    return click.option(
        "--dry-run", is_flag=True, help="Change nothing; print what would happen right away."
    )(command)
