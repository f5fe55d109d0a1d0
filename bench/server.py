"""A real `muster up` in a process of its own, to be measured from outside."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Server:
    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.url = url

    def resident_kib(self) -> int:
        """Memory in use, as the kernel counts it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1])


@contextmanager
def muster_up(*words: str) -> Iterator[Server]:
    """A server on SQLite in a folder that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        command = [sys.executable, "-m", "cli.main", "up", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--db", f"{folder}/m.db", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = ""
            for line in process.stdout:
                url = line.split()[1] if line.startswith("  API") else url
                if line.startswith("Try: "):
                    break
            yield Server(process, url)
        finally:
            process.kill()
            process.wait()
