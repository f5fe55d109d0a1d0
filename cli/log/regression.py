"""A bundle as a regression test: today's code must go on deciding an incident as recorded."""

import re
import shutil
from pathlib import Path

from cli.errors import WRONG_USAGE, CliError
from cli.log.exported_log import ExportedLog
from cli.log.sources import Kind, Source, reading
from cli.settings import reason
from controlplane.audit.bundle import Header

TEMPLATE = '''"""{title}"""

from pathlib import Path

from cli.log.incident import check_bundle

BUNDLE = Path(__file__).parent / "{bundle}"


def test_{name}_replays_and_is_decided_as_it_was():
    check_bundle(BUNDLE)
'''


async def write_test(source: Source, into: str, name: str | None) -> Path:
    """Copy the bundle and write a test next to it; return the test's path."""
    if source.kind is not Kind.EXPORT or source.place == "-":
        raise _no_bundle(source)
    async with reading(source) as log:
        header = log.header if isinstance(log, ExportedLog) else None
    if header is None:
        raise _no_bundle(source)
    return _write(source, header, Path(into), name)


def _write(source: Source, header: Header, folder: Path, name: str | None) -> Path:
    plain = name or source.path.name.removesuffix(".gz").removesuffix(".bundle")
    word = re.sub(r"\W+", "_", plain).strip("_").lower() or "incident"
    copy = folder / f"{word}{''.join(source.path.suffixes[-2:])}"
    test = folder / f"test_{word}.py"
    title = (header.note or f"Positions {header.base + 1}-{header.last} of a log").rstrip(".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if copy.resolve() != source.path.resolve():
            shutil.copyfile(source.path, copy)
        text = TEMPLATE.format(title=title.replace('"', "'"), bundle=copy.name, name=word)
        test.write_text(text)
    except OSError as error:
        raise CliError(f"{folder} cannot be written to: {reason(error)}") from None
    return test


def _no_bundle(source: Source) -> CliError:
    return CliError(
        f"{source} is not a bundle",
        hint="`muster log export LOG --from ... --to ... --bundle FILE` makes one.",
        exit_code=WRONG_USAGE,
    )
