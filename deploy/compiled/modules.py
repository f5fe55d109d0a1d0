"""Which modules are compiled, and whether they may be.

Compiled is what every event goes through: the core's decisions, the simulated cluster and what a
study notes. Left as they are written: modules of values alone, which only say what fields there are;
protocols; kinds of manifests, which are read once a job; and whatever a person waits for anyway.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The packages that hold a compiled module; the others are found beside the sources.
PACKAGES = ("controlplane", "simulator", "adapters", "studies")

_COMPILED = (
    "controlplane/*.py",
    "controlplane/scheduling/*.py",
    "controlplane/kinds/checking.py",
    "controlplane/kinds/wishes.py",
    "adapters/simpy_clock.py",
    "adapters/simulated_cluster/*.py",
    "simulator/agenda.py",
    "simulator/books.py",
    "simulator/gangs.py",
    "simulator/machine.py",
    "simulator/machine_training.py",
    "studies/forgetful_log.py",
    "studies/people.py",
    "studies/recorder.py",
    "studies/submissions.py",
)
_AS_WRITTEN = {
    # Values, and what they are made of.
    "controlplane/attempt.py",
    "controlplane/bundle.py",
    "controlplane/commands.py",
    "controlplane/difference.py",
    "controlplane/events.py",
    "controlplane/image.py",
    "controlplane/job.py",
    "controlplane/model.py",
    "controlplane/page.py",
    "controlplane/scheduling/reasons.py",
    "controlplane/sharing.py",
    "controlplane/supplies.py",
    "controlplane/views.py",
    # Rows of a damaged log hold anything, which a compiled function would refuse before it is told.
    "controlplane/codec.py",
    # Written in C as well: see `build.py`.
    "controlplane/links.py",
    "controlplane/payloads.py",
    "controlplane/rows.py",
    "controlplane/submissions.py",
    # Protocols and exceptions.
    "controlplane/errors.py",
    "controlplane/ports.py",
    # Asked by people.
    "controlplane/aliases.py",
    "controlplane/queries.py",
    "controlplane/redaction.py",
    # Generators that are context managers.
    "controlplane/collector.py",
}
# What msgspec makes of a class it reads off keywords and annotations, which a compiled one has lost.
_VALUES = {"Struct", "msgspec.Struct", "Value", "Row"}


def compiled_modules() -> list[str]:
    """Paths of the modules to compile, from the root of the project."""
    found = {
        path.relative_to(ROOT).as_posix()
        for pattern in _COMPILED
        for path in ROOT.glob(pattern)
        if path.name != "__init__.py"
    }
    return sorted(found - _AS_WRITTEN)


def surprises(module: str) -> Iterator[str]:
    """What of a module would silently be something else when compiled."""
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.ClassDef):
            for told in _of_class(node):
                yield f"{module}:{node.lineno}: {node.name} {told}"


def _of_class(node: ast.ClassDef) -> Iterator[str]:
    if _VALUES & {ast.unparse(base) for base in node.bases}:
        yield "would be no value: it belongs into a module of its own"
    decorators = [
        ast.unparse(decorator)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for decorator in method.decorator_list
    ]
    if "cached_property" in decorators:
        yield "would work a cached property out whenever it is asked"
