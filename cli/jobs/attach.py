"""`muster attach`: a command in the container of a rank, over the cluster's own API.

Muster names the pod; the cluster is then called with the person's own kubeconfig. So the cluster's
RBAC decides which people may run commands in pods, and the control plane needs no such permission.
"""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import click

from api.jobs.pods import Place
from cli.client.client import connect, job_path, run
from cli.errors import FAILED, CliError
from cli.jobs.job_logs import ranks_named
from cli.options import job_argument, namespace_option, parse_job, url_option
from cli.settings import read_settings
from controlplane.queries.views import JobDetail

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
@namespace_option
@click.option(
    "-r",
    "--rank",
    default="0",
    show_default=True,
    help="Rank: a number, or a name such as worker-0.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    default=lambda: read_settings().kubeconfig,
    show_default="KUBECONFIG, or ~/.kube/config",
    help="The kubeconfig.",
)
@click.option("--context", metavar="NAME", default="", help="The context of the kubeconfig.")
@url_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def attach(
    job: str,
    namespace: str,
    rank: str,
    kubeconfig: str,
    context: str,
    url: str | None,
    command: tuple[str, ...],
) -> None:
    """Run a command in the container of a rank, or a shell if none is given.

    The exit code is the command's. It needs a Kubernetes cluster and a kubeconfig that may exec
    into its pods.

    \b
    Examples:
      muster attach bert
      muster attach bert --rank worker-3 -- nvidia-smi
    """
    name = parse_job(job, namespace)

    async def work() -> int:
        async with connect(url) as server:
            job_detail = await server.get(job_path(*name), JobDetail)
            (number,) = ranks_named(job_detail, [rank])
            place = await server.get(job_path(*name, "/place"), Place, rank=number)
        return await _execute(place, kubeconfig, context, command)

    sys.exit(run(work()))


async def _execute(place: Place, kubeconfig: str, context: str, command: tuple[str, ...]) -> int:
    from adapters.kubernetes.api.connection import Connection
    from adapters.kubernetes.api.errors import ApiError
    from adapters.kubernetes.api.kubeconfig import Access
    from adapters.kubernetes.api.resources import RESOURCES

    tty = not command or (sys.stdin.isatty() and sys.stdout.isatty())
    path = f"{RESOURCES['Pod'].one(place.namespace, place.pod)}/exec"
    query: dict[str, str | int | list[str]] = {
        "command": list(command or SHELL),
        "stdin": "true",
        "stdout": "true",
        "tty": "true" if tty else "false",
    }
    if not tty:
        query["stderr"] = "true"
    if place.container:
        query["container"] = place.container
    try:
        connection = await Connection.open(Access(kubeconfig, context))
        try:
            async with connection.websocket(path, query, PROTOCOLS) as socket:
                return await _converse(socket, tty=tty and sys.stdin.isatty())
        finally:
            await connection.close()
    except ApiError as error:
        raise CliError(
            f"{place.namespace}/{place.pod} on {place.node} cannot be reached: {error}",
            hint=f"Is {kubeconfig or 'the account of this pod'} of the cluster {place.cluster}?",
        ) from None


async def _converse(socket: aiohttp.ClientWebSocketResponse, *, tty: bool) -> int:
    with _raw_terminal(tty):
        sending = asyncio.create_task(_send(socket, tty))
        try:
            return await _receive(socket)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> int:
    """Write the command's output to the terminal; return its exit code."""
    code = FAILED
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel in (STDOUT, STDERR):
            out = sys.stdout if channel == STDOUT else sys.stderr
            out.buffer.write(data)
            out.flush()
        elif channel == ERROR and data:
            code = exit_code(data)
    return code


def exit_code(status: bytes) -> int:
    """Return the exit code in the status with which the cluster ends a command."""
    answer = json.loads(status)
    if answer.get("status") == "Success":
        return 0
    for cause in (answer.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise CliError(str(answer.get("message") or "the command could not be run"))


async def _send(socket: aiohttp.ClientWebSocketResponse, tty: bool) -> None:
    """Send standard input, and the terminal's size."""
    loop = asyncio.get_running_loop()
    if tty:
        await _send_size(socket)
        loop.add_signal_handler(signal.SIGWINCH, lambda: asyncio.ensure_future(_send_size(socket)))
    async with _typed() as chunks:
        async for chunk in chunks:
            await socket.send_bytes(bytes([STDIN]) + chunk)
    if socket.protocol == PROTOCOLS[0]:
        await socket.send_bytes(bytes([CLOSE, STDIN]))


async def _send_size(socket: aiohttp.ClientWebSocketResponse) -> None:
    size = os.get_terminal_size(sys.stdin.fileno())
    message = json.dumps({"Width": size.columns, "Height": size.lines}).encode()
    await socket.send_bytes(bytes([RESIZE]) + message)


@asynccontextmanager
async def _typed() -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield standard input as it arrives, without a thread that waits for it."""
    if not _can_be_waited_for(sys.stdin.fileno()):
        yield _once(sys.stdin.buffer.read())
        return
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    # A duplicate, because it is closed at the end, and this function does not own standard input.
    file = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        yield _chunks(reader)
    finally:
        transport.close()
        # The parent process shares the file description and expects blocking reads.
        os.set_blocking(sys.stdin.fileno(), True)


def _can_be_waited_for(file: int) -> bool:
    """Return whether `file` is a terminal, a pipe or a socket, which an event loop can wait for.

    A regular file or /dev/null is readable at once.
    """
    mode = os.fstat(file).st_mode
    return os.isatty(file) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(4096):
        yield chunk


async def _once(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


@contextmanager
def _raw_terminal(tty: bool) -> Iterator[None]:
    """Put the terminal in raw mode, so that keys reach the container unchanged; restore it."""
    if not tty:
        yield
        return
    import termios
    import tty as terminal

    before = termios.tcgetattr(sys.stdin)
    terminal.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
