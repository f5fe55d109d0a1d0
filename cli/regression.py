"""A bundle as a regression test: what an incident led to must go on being decided that way."""

import re
import shutil
from pathlib import Path

from cli.complaints import WRONG_USAGE, Complaint
from cli.exported import ExportedLog
from cli.settings import reason
from cli.sources import Kind, Source, reading
from controlplane.bundle import Header

TEMPLATE = '''"""{title}"""

from pathlib import Path

from cli.incident import check_bundle

BUNDLE = Path(__file__).parent / "{bundle}"


def test_{name}_replays_and_is_decided_as_it_was():
    check_bundle(BUNDLE)
'''


async def write_test(source: Source, into: str, name: str | None) -> Path:
    """Copies the bundle and writes a test beside it; returns the test's path."""
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
        raise Complaint(f"{folder} cannot be written to: {reason(error)}") from None
    return test


def _no_bundle(source: Source) -> Complaint:
    return Complaint(
        f"{source} is no bundle",
        hint="`muster log export LOG --from ... --to ... --bundle FILE` makes one.",
        exit_code=WRONG_USAGE,
    )
