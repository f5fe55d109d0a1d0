"""Which scenario files are run, one test a scenario, and a table of how each category did.

`pytest tests/conformance --scenarios FILE ...` runs the files it is given; without the option it
takes the files of a `shared/conformance` folder next to the repository, or of $MUSTER_SHARED.
A test module asks for a fixture named after a file's format (see FIXTURES).
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# The `format` that a file declares, and the fixture that gets one scenario of it.
FIXTURES = {
    "kubeflow-conformance-scenarios": "kubeflow_scenario",
    "gang-scenarios/1": "gang_scenario",
}
_RESULTS: Counter[tuple[str, str, str]] = Counter()
_CATEGORY = pytest.StashKey[tuple[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scenarios",
        nargs="+",
        default=None,
        metavar="FILE",
        help="files of conformance scenarios to run (default: those in ../shared/conformance)",
    )


def files(config: pytest.Config) -> list[Path]:
    named = config.getoption("--scenarios", None)
    if named is not None:
        return [Path(name) for name in named]
    shared = Path(os.environ.get("MUSTER_SHARED", ROOT.parent / "shared"))
    return sorted((shared / "conformance").glob("*.json"))


def _documents(config: pytest.Config) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in files(config):
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"{path} cannot be read as a scenario file: {error}") from error
        if not isinstance(document, dict) or not isinstance(document.get("format"), str):
            raise pytest.UsageError(f"{path} does not name the format of its scenarios")
        if document["format"] in FIXTURES:
            yield path, document
        elif config.getoption("--scenarios", None) is not None:
            known = ", ".join(FIXTURES)
            raise pytest.UsageError(f"{path}: format {document['format']!r} is not one of {known}")


def all_scenarios(config: pytest.Config, form: str) -> list[dict[str, Any]]:
    """Every scenario of one format in the files that are run."""
    documents = [document for _, document in _documents(config) if document["format"] == form]
    return [scenario for document in documents for scenario in document["scenarios"]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for form, fixture in FIXTURES.items():
        if fixture not in metafunc.fixturenames:
            continue
        scenarios = all_scenarios(metafunc.config, form)
        params = [pytest.param(scenario, id=scenario["id"]) for scenario in scenarios]
        if not params:
            missing = f"no file of format {form}; name one with --scenarios, or set MUSTER_SHARED"
            params = [pytest.param(None, id="none", marks=pytest.mark.skip(reason=missing))]
        metafunc.parametrize(fixture, params)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        for fixture in FIXTURES.values():
            if isinstance(given.get(fixture), dict):
                item.stash[_CATEGORY] = (
                    fixture.removesuffix("_scenario"),
                    category(given[fixture]),
                )


def category(scenario: dict[str, Any]) -> str:
    named = scenario.get("category")
    return str(named or (scenario.get("tags") or ["other"])[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    where = item.stash.get(_CATEGORY, None)
    if where is not None and (
        report.when == "call" or (report.when == "setup" and not report.passed)
    ):
        _RESULTS[(*where, report.outcome)] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _RESULTS:
        return
    terminalreporter.section("conformance")
    rows = sorted({key[:2] for key in _RESULTS})
    width = max(len(name) for _, name in rows)
    for suite, name in rows:
        passed, failed, skipped = (
            _RESULTS[suite, name, outcome] for outcome in ("passed", "failed", "skipped")
        )
        summary = f"{passed:4} of {passed + failed + skipped:4} pass"
        summary += f", {failed} fail" if failed else ""
        summary += f", {skipped} skipped" if skipped else ""
        terminalreporter.write_line(f"{suite:10} {name:{width}} {summary}")
