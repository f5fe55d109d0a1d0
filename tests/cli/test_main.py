"""The command line as a whole: help, suggestions, completion, and no stack traces."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.main import ALIASES, ENTRIES, cli, run
from tests.cli.conftest import Muster
from tests.cli.logs import recorded, sqlite_log

MUSTER = [sys.executable, "-m", "cli.main"]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*ENTRIES, *ALIASES])
def test_every_command_has_help(muster: Muster, name: str) -> None:
    ran = muster(name, "--help")
    assert ran.code == 0
    assert "Usage: muster" in ran.out


def test_every_command_that_takes_more_than_a_name_shows_an_example() -> None:
    simple = {"version", "suspend", "resume", "delete"}
    for name in ENTRIES.keys() - simple - {"completion"}:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert "Examples:" in (command.help or ""), name


def test_no_help_is_wider_than_a_terminal(muster: Muster) -> None:
    for name in ENTRIES:
        for line in muster(name, "--help").out.splitlines():
            assert len(line) <= 80 or "[" in line, line


def test_a_misspelt_command_gets_a_suggestion(muster: Muster) -> None:
    ran = muster("submti")
    assert ran.code == 2
    assert "Did you mean 'submit'?" in ran.err
    assert muster("list", "--wath").code == 2


def test_without_a_command_the_overview_is_shown(muster: Muster) -> None:
    ran = muster()
    assert ran.code == 2
    assert "First steps:" in ran.err + ran.out


def test_a_server_that_is_not_there_is_one_line_and_a_hint(muster: Muster) -> None:
    ran = muster("list")
    assert (ran.code, ran.out) == (1, "")
    first, second = ran.err.splitlines()
    assert first == "error: cannot reach the server at http://127.0.0.1:1: connection refused"
    assert "muster up" in second


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://127.0.0.1:1"])
def test_a_url_that_is_none_is_refused(muster: Muster, url: str) -> None:
    ran = muster("list", "--url", url)
    assert ran.code in (1, 2)
    assert "Traceback" not in ran.err
    assert url in ran.err


def test_a_server_that_is_not_muster_is_reported(
    muster: Muster, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = muster("list", "--url", f"{server}/docs")
    assert ran.code == 1
    assert "MUSTER_URL" in ran.err


def test_a_bug_shows_a_line_and_no_trace(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.output.times.stamp", None)
    monkeypatch.setattr("cli.completion.installed_version", None)
    ran = muster("version")
    assert ran.code == 1
    assert ran.err.startswith("error: this should not happen: TypeError")
    monkeypatch.setenv("MUSTER_DEBUG", "1")
    with pytest.raises(TypeError):
        run(["version"])


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_the_version_is_printed(muster: Muster, asked: str) -> None:
    assert muster(asked).out.startswith("muster 0.")


@pytest.mark.parametrize("command", ["log stats", "log export", "replay --step", "replay"])
def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path, command: str) -> None:
    log = sqlite_log(tmp_path / "m.db", recorded(200))
    first, *rest = command.split()
    words = " ".join([first, *rest[:1], str(log)] if first == "log" else [first, str(log), *rest])
    shell = f"set -o pipefail; {sys.executable} -m cli.main {words} | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_quietly_with_130(server: str) -> None:
    words = [*MUSTER, "events", "--watch", "--url", server]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors.strip()) == (130, "")


def test_an_interrupted_wait_reports_that_the_job_continues(server: str, manifest) -> None:  # type: ignore[no-untyped-def]
    words = [*MUSTER, "submit", str(manifest("goes-on", duration_s=1e6)), "--wait", "--url", server]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "goes-on" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "no longer waiting; default/goes-on goes on" in errors
    assert "muster cancel default/goes-on" in errors
    assert "Traceback" not in errors


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(muster: Muster, shell: str) -> None:
    ran = muster("completion", shell)
    assert ran.code == 0
    assert "_MUSTER_COMPLETE" in ran.out
    assert muster("completion", "tcsh").code == 2


def test_the_script_of_bash_is_bash(muster: Muster) -> None:
    script = muster("completion", "bash").out
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def completed(words: str, **env: str) -> list[str]:
    """What bash would be offered behind these words."""
    given = {"_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": words, **env}
    given["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run(
        MUSTER, env={**os.environ, **given}, capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_commands_options_and_jobs_are_completed(
    muster: Muster,
    server: str,
    manifest,  # type: ignore[no-untyped-def]
) -> None:
    assert "submit" in completed("muster su")
    assert "--phase" in completed("muster list --ph")
    muster("submit", manifest("tab-here", duration_s=1_000_000))
    assert completed("muster get tab", MUSTER_URL=server) == ["tab-here"]
    assert completed("muster get tab", MUSTER_URL="http://127.0.0.1:1") == []


@pytest.mark.parametrize("sign", ["study", "study/cells/*.json"], ids=["begins", "computes"])
def test_an_interrupted_study_ends_quietly_with_130(tmp_path: Path, sign: str) -> None:
    """Ctrl-C reaches every process of the terminal, those that compute the cells as well."""
    words = ["whatif", "--trace", str(ROOT / "examples" / "jobs.csv"), "--nodes", "20x8,22x8,24x8"]
    more = ["--replications", "20", "--workers", "2", "--out", str(tmp_path / "study")]
    process = subprocess.Popen(
        [*MUSTER, *words, *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not any(tmp_path.glob(sign)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False)


def test_a_full_disk_behind_the_output_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "m.db"
    sqlite_log(log, recorded())
    for words in (["log", "export"], ["replay"], ["log", "stats", "--json"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*MUSTER, *words, str(log)], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert (done.returncode, done.stderr) == (
            1,
            "error: not everything could be written: no space left on device\n",
        )


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_do_no_harm(tmp_path: Path, closed: str) -> None:
    log = tmp_path / "m.db"
    sqlite_log(log, recorded())
    before = log.read_bytes()
    line = f"{' '.join(MUSTER)} log verify {log} {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert log.read_bytes() == before
