"""Run the commands of docs/whatif.md, and write their output and pictures back into the page.

Every block that begins with `$ muster whatif` runs in a temporary folder that has the examples, so
the page shows the output of the current code. With --check it only reports files that would change.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "whatif.md"
PICTURES = ROOT / "docs" / "whatif"
# The section of the report of the study in this folder, and the name of its picture.
DRAWN = {
    ("policies", "Where the GPU time went"): "gpu-time.svg",
    ("sizes", "Wait against capacity"): "capacity.svg",
    ("sizes", "Use over time"): "use.svg",
    ("sizes", "Use by node"): "nodes.svg",
    ("window", "Gantt chart"): "gantt.svg",
}
STYLE = (
    "text{font:11.5px system-ui,sans-serif;fill:#475569}.end{text-anchor:end}.mid{text-anchor:middle}"
    ".on-bar{fill:#fff;text-anchor:middle;font-weight:600}.grid{stroke:#e2e8f0}.axis{stroke:#94a3b8}"
    ".limit{stroke:#b91c1c;stroke-dasharray:6 4}.limit-name{fill:#b91c1c;text-anchor:end}"
    ".waited{fill:#cbd5e1}"
)
_BLOCK = re.compile(r"```console\n(\$ muster whatif .*?)```\n", re.S)


def main(words: list[str]) -> int:
    files = made()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in words:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make docs`")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path])
    return 0


def made() -> dict[Path, str]:
    """Return the page and its pictures as the commands make them now."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        page = _BLOCK.sub(lambda match: _run(match[1], folder), PAGE.read_text())
        files = {PAGE: page}
        for (study, heading), picture in DRAWN.items():
            report = (folder / study / "report.html").read_text()
            files[PICTURES / picture] = _picture(report, heading)
    return files


def _run(block: str, folder: Path) -> str:
    command = block.split("\n", 1)[0].removeprefix("$ ")
    while command.endswith("\\"):
        block = block.split("\n", 1)[1]
        command = command[:-1] + block.split("\n", 1)[0].strip()
    muster = [sys.executable, "-m", "cli.main"]
    env = {**os.environ, "COLUMNS": "110", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" ' + command.removeprefix("muster "), "sh", *muster],
        cwd=folder, env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    shown = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    return "```console\n" + "\n".join(_lines_of(command)) + f"\n{shown}\n```\n"


def _lines_of(command: str) -> list[str]:
    """The command as it is shown, in lines that fit on a page."""
    lines, line = [], "$"
    for word in re.findall(r"'[^']*'|\S+", command):
        if len(line) + len(word) > 92:
            lines.append(line + " \\")
            line = "   "
        line += f" {word}"
    return [*lines, line]


def _picture(report: str, heading: str) -> str:
    """The first picture of a section, with the styles that the page gave it."""
    section = report.split(f"<h2>{heading}</h2>", 1)[1]
    drawn = section[section.index("<svg") : section.index("</svg>") + len("</svg>")]
    head, rest = drawn.split(">", 1)
    return (
        f'{head} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{rest}\n'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
