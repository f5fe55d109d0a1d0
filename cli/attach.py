"""`muster attach`: a command in the container of a rank, over the cluster's own API.

Muster says which pod it is; the cluster is asked with the person's own kubeconfig. So who may run
commands in pods is decided by the cluster's rules for people, and the control plane needs no right
to do so itself.
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

from api.pods import Place
from cli.client import connect, job_path, run
from cli.complaints import FAILED, Complaint
from cli.job_logs import ranks_named
from cli.options import job_argument, namespace_option, parse_job, url_option
from cli.settings import read_settings
from controlplane.views import JobDetail

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
@namespace_option
@click.option("-r", "--rank", default="0", show_default=True, help="Its number, or worker-0.")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    default=lambda: read_settings().kubeconfig,
    show_default="KUBECONFIG, or ~/.kube/config",
    help="With which you reach the cluster.",
)
@click.option("--context", metavar="NAME", default="", help="Which of the kubeconfig's.")
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

    The exit code is the command's. It needs a real cluster, and the right to run commands in its
    pods, which your kubeconfig brings.

    \b
    Examples:
      muster attach bert
      muster attach bert --rank worker-3 -- nvidia-smi
    """
    name = parse_job(job, namespace)

    async def work() -> int:
        async with connect(url) as server:
            found = await server.get(job_path(*name), JobDetail)
            (number,) = ranks_named(found, [rank])
            place = await server.get(job_path(*name, "/place"), Place, rank=number)
        return await _execute(place, kubeconfig, context, command)

    sys.exit(run(work()))


async def _execute(place: Place, kubeconfig: str, context: str, command: tuple[str, ...]) -> int:
    from adapters.kubernetes.access import Access
    from adapters.kubernetes.connection import Connection
    from adapters.kubernetes.errors import ApiError
    from adapters.kubernetes.resources import RESOURCES

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
        raise Complaint(
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
    """What the command writes goes out; returns the code that it exits with."""
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
    """What the cluster says of the command's end."""
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0
    for cause in (told.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise Complaint(str(told.get("message") or "the command could not be run"))


async def _send(socket: aiohttp.ClientWebSocketResponse, tty: bool) -> None:
    """What is typed goes in, and the terminal's size."""
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
    told = json.dumps({"Width": size.columns, "Height": size.lines}).encode()
    await socket.send_bytes(bytes([RESIZE]) + told)


@asynccontextmanager
async def _typed() -> AsyncIterator[AsyncIterator[bytes]]:
    """Standard input as it comes, without keeping a thread waiting for it."""
    if not _can_be_waited_for(sys.stdin.fileno()):
        yield _once(sys.stdin.buffer.read())
        return
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    # A file of our own, for it is closed in the end, and standard input is not ours to close.
    file = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        yield _chunks(reader)
    finally:
        transport.close()
        # Whoever started us shares it, and does not expect it to answer at once.
        os.set_blocking(sys.stdin.fileno(), True)


def _can_be_waited_for(file: int) -> bool:
    """A terminal, a pipe or a socket; of a file or /dev/null all is there at once."""
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
    """Keys go to the other side as they are, and the terminal is put back as it was."""
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
