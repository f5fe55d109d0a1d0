"""`muster log` and `muster replay`: what was written is there, and what was changed is detected."""

import re
import sqlite3
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Muster
from tests.cli.logs import ORIGIN, recorded, sqlite_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return sqlite_log(tmp_path / "muster.db", recorded())


@pytest.fixture
def export(log: Path, muster: Muster, tmp_path: Path) -> Path:
    path = tmp_path / "export.jsonl"
    assert muster("log", "export", log, "-o", path).code == 0
    return path


def change(log: Path, statement: str) -> None:
    with sqlite3.connect(log) as connection:
        connection.execute(statement)
    connection.close()


# ---------------------------------------------------------------- verify


def test_an_intact_log_is_verified(muster: Muster, log: Path) -> None:
    ran = muster("log", "verify", log)
    assert ran.code == 0
    assert f"{log} is whole." in ran.out
    verified = muster("log", "verify", log, "--json").json
    assert (verified["jobs"], verified["nodes"], verified["first_position"]) == (3, 8, 1)


@pytest.mark.parametrize(
    ("statement", "position", "message"),
    [
        ("UPDATE events SET payload = payload || ' ' WHERE position = 5", 5, "hash"),
        ("UPDATE events SET at = at + 1 WHERE position = 7", 7, "hash"),
        ("UPDATE events SET actor = 'eve' WHERE position = 12", 12, "hash"),
        ("DELETE FROM events WHERE position = 9", 9, "continues at 10"),
        ("DELETE FROM events WHERE position > 30", 31, "is missing"),
        ("UPDATE head SET hash = zeroblob(32)", None, "hash is not the head's"),
        ("UPDATE events SET type = 'JobVanished' WHERE position = 11", 11, "hash"),
    ],
)
def test_a_changed_log_is_detected_at_the_first_bad_position(
    muster: Muster, log: Path, statement: str, position: int | None, message: str
) -> None:
    change(log, statement)
    ran = muster("log", "verify", log)
    assert ran.code == 1
    assert message in ran.err
    if position is not None:
        assert f"damaged at position {position}: " in ran.err
        assert f"Positions 1-{position - 1} are good." in ran.err


def test_a_truncated_and_closed_log_is_detected_by_a_noted_hash(muster: Muster, log: Path) -> None:
    noted = muster("log", "verify", log, "--json").json
    pin = f"{noted['last_position']}:{noted['last_hash'][:12]}"
    assert muster("log", "verify", log, "--expect", pin).code == 0
    # Between two instants: in the middle of a step, the decisions would show it.
    at = recorded()[29].at
    cut = max(r.position for r in recorded() if r.at < at)
    change(log, f"DELETE FROM events WHERE position > {cut}")
    last = f"(SELECT hash FROM events WHERE position = {cut})"
    change(log, f"UPDATE head SET position = {cut}, hash = {last}")
    assert muster("log", "verify", log).code == 0
    ran = muster("log", "verify", log, "--expect", pin)
    assert ran.code == 1
    assert f"position {cut + 1}: is missing" in ran.err
    assert muster("log", "verify", log, "--expect", "31").code == 2


def test_a_log_truncated_within_a_step_is_detected_by_its_decisions(
    muster: Muster, log: Path
) -> None:
    change(log, "DELETE FROM events WHERE position > 30")
    last = "(SELECT hash FROM events WHERE position = 30)"
    change(log, f"UPDATE head SET position = 30, hash = {last}")
    ran = muster("log", "verify", log)
    assert ran.code == 1
    assert "this release decides otherwise at position 31" in ran.out
    assert "its devices are free" in ran.out
    assert muster("log", "verify", log, "--no-decisions").code == 0


def test_impossible_events_are_detected(muster: Muster, tmp_path: Path) -> None:
    events = recorded()
    started = next(r for r in events if type(r.event).__name__ == "GangStarted")
    twice = [*events, msgspec.structs.replace(started, position=len(events) + 1, at=2e9)]
    odd = sqlite_log(tmp_path / "odd.db", twice)
    ran = muster("log", "verify", odd, "--no-decisions")
    assert ran.code == 1
    assert f"position {len(twice)}: this cannot have happened" in ran.err
    ran = muster("log", "verify", odd)
    assert ran.code == 1
    step = events[-1].step + 1
    assert f"position {len(twice)}: step {step} is expected here" in ran.err


def test_a_false_snapshot_is_detected(muster: Muster, log: Path, tmp_path: Path) -> None:
    import asyncio

    from adapters.database.event_log import DatabaseLog
    from controlplane.log.replay import rebuild
    from controlplane.log.snapshots import take_snapshot

    async def save(position: int, shown: int) -> None:
        opened = await DatabaseLog.open(log)
        rebuilt = await rebuild(opened, position=shown)
        snapshot = take_snapshot(rebuilt.world, rebuilt.hash)
        await opened.save_snapshot(snapshot._replace(position=position))
        await opened.close()

    asyncio.run(save(20, 20))
    assert "taken at position 20" in muster("log", "verify", log).out
    asyncio.run(save(25, 20))
    ran = muster("log", "verify", log)
    assert ran.code == 1
    assert "position 25: the snapshot taken here shows another state" in ran.err


def test_what_is_no_log_is_named(muster: Muster, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, and long enough to be taken for one" * 10)
    other = tmp_path / "other.db"
    change(other, "CREATE TABLE t (x)")
    for place, message in (
        (tmp_path / "none.db", "there is no log"),
        (text, "no SQLite database"),
        (other, "another program's database"),
        ("mysql://x/y", "an unknown type of log"),
    ):
        ran = muster("log", "verify", place)
        assert ran.code in (1, 2)
        assert message in ran.err
    assert muster("log", "verify").err.startswith("error: there is no log")


# ---------------------------------------------------------------- export and import


@pytest.mark.parametrize("command", ["log verify", "log stats", "replay", "analyse"])
def test_absurd_names_and_files_are_refused_by_name(
    muster: Muster, export: Path, tmp_path: Path, command: str
) -> None:
    deep = tmp_path / "deep.jsonl"
    first = export.read_text().splitlines()[0]
    deep.write_text(re.sub(r'"payload":{.*?}', f'"payload":{"[" * 3000}{"]" * 3000}', first) + "\n")
    for name, message in (
        (tmp_path, "is not a file, but a folder"),
        ("x" * 300, "file name too long"),
        ("", "the name of the log is empty"),
        ("/dev/null", "is not a file"),
        (deep, "it is nested too deeply"),
    ):
        ran = muster(*command.split(), name)
        assert ran.code in (1, 2), name
        assert message in ran.err, name


def test_a_log_survives_the_way_out_and_in(
    muster: Muster, log: Path, export: Path, tmp_path: Path
) -> None:
    restored = tmp_path / "restored.db"
    ran = muster("log", "import", export, restored)
    assert ran.code == 0
    first, second = (muster("log", "verify", each, "--json").json for each in (log, restored))
    assert first == second
    assert muster("log", "export", restored).out == export.read_text()
    assert not list(tmp_path.glob("*.part*"))


def test_an_export_through_a_pipe_is_verified_and_imported(
    muster: Muster, export: Path, tmp_path: Path
) -> None:
    text = export.read_text()
    assert muster("log", "verify", "-", stdin=text).code == 0
    assert muster("log", "import", "-", tmp_path / "piped.db", stdin=text).code == 0


def test_part_of_a_log_can_be_exported_and_still_be_checked(
    muster: Muster, log: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part.jsonl"
    assert muster("log", "export", log, "--from", 10, "--to", 20, "-o", part).code == 0
    assert len(part.read_text().splitlines()) == 11
    ran = muster("log", "verify", part)
    assert (ran.code, "not tried: it begins at position 10" in ran.out) == (0, True)
    assert "does not begin at position 1" in muster("log", "import", part, tmp_path / "x.db").err
    assert muster("replay", part).code == 1
    assert muster("log", "export", log, "--from", 5, "--to", 4).code == 2
    lines = part.read_text().splitlines()
    part.write_text("\n".join([*lines[:3], lines[3].replace('"cause":""', '"cause":"x"')]))
    assert "position 13" in muster("log", "verify", part).err


def test_a_changed_export_is_not_imported(muster: Muster, export: Path, tmp_path: Path) -> None:
    lines = export.read_text().splitlines()
    for damage, message in (
        ([*lines[:4], lines[4].replace("rack-0", "rack-9"), *lines[5:]], "position 5"),
        ([*lines[:4], *lines[5:]], "position 5"),
        ([*lines[:4], "{not json"], "line 5 cannot be read"),
    ):
        bad = tmp_path / "bad.jsonl"
        bad.write_text("\n".join(damage))
        ran = muster("log", "import", bad, tmp_path / "new.db")
        assert ran.code == 1
        assert message in ran.err
        assert not (tmp_path / "new.db").exists()


def test_an_import_needs_an_empty_log_and_an_export(
    muster: Muster, log: Path, export: Path, tmp_path: Path
) -> None:
    ran = muster("log", "import", export, log)
    assert ran.code == 1
    assert "already holds" in ran.err
    assert muster("log", "import", log, tmp_path / "new.db").code == 2
    assert muster("log", "verify", log).code == 0
    assert muster("log", "import", export, sqlite_log(tmp_path / "empty.db", [])).code == 0


def test_the_good_part_of_a_damaged_log_can_be_saved(
    muster: Muster, log: Path, tmp_path: Path
) -> None:
    change(log, "UPDATE events SET payload = 'x' WHERE position = 21")
    good, restored = tmp_path / "good.jsonl", tmp_path / "restored.db"
    assert muster("log", "export", log, "--to", 20, "-o", good).code == 0
    assert muster("log", "import", good, restored).code == 0
    assert muster("log", "verify", restored, "--json").json["events"] == 20


def test_a_log_goes_through_postgresql_unchanged(
    muster: Muster, log: Path, export: Path, database_url: str
) -> None:
    assert muster("log", "import", export, database_url).code == 0
    first, second = (muster("log", "verify", each, "--json").json for each in (log, database_url))
    assert first == second
    assert muster("log", "export", database_url).out == export.read_text()
    assert muster("log", "import", export, database_url).code == 1
    assert muster("replay", database_url, "--json").json == muster("replay", log, "--json").json


def test_stats_count_events_by_type(muster: Muster, log: Path) -> None:
    shown = muster("log", "stats", log).out
    assert "JobSubmitted" in shown
    assert "3 submitted" in shown
    stats = muster("log", "stats", log, "--json").json
    assert stats["findings"]["types"]["GangPlaced"] == 3
    assert stats["size_bytes"] > 0


# ---------------------------------------------------------------- replay


def test_replay_shows_the_world_at_a_position_and_at_a_time(muster: Muster, log: Path) -> None:
    placed = next(r for r in recorded() if type(r.event).__name__ == "GangStarted")
    by_position = muster("replay", log, "--position", placed.position, "--json").json
    assert by_position["position"] == placed.position
    assert "Running" in {job["phase"] for job in by_position["jobs"]}
    shown = muster("replay", log, "--at", placed.at)
    assert "Running" in shown.out
    assert "rack-1-3" in shown.out
    start, end = (muster("replay", log, *words, "--json").json for words in (["--at", "-30s"], []))
    assert start["at"] < end["at"]
    assert {job["phase"] for job in end["jobs"]} == {"Succeeded"}


def test_replay_reads_exports_and_pipes_alike(muster: Muster, log: Path, export: Path) -> None:
    output = muster("replay", log, "--json").out
    assert muster("replay", export, "--json").out == output
    assert muster("replay", "-", "--json", stdin=export.read_text()).out == output


def test_stepping_shows_every_event_and_its_change(muster: Muster, log: Path) -> None:
    lines = muster("replay", log, "--step").out.splitlines()
    assert len(lines) == len(recorded())
    assert any("nlp/job-0: submitted to queue default" in line for line in lines)
    assert any("[Running -> Succeeded]" in line for line in lines)
    assert any("(asked by ada)" in line for line in lines)
    some = muster("replay", log, "--step", "--from", 12, "--position", 14, "--json").out
    steps = [msgspec.json.decode(line) for line in some.splitlines()]
    assert [each["position"] for each in steps] == [12, 13, 14]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--position", "99999"], "the log ends at position"),
        (["--at", str(ORIGIN - 1)], "the log begins after"),
        (["--at", "yesterday"], "is not a time"),
        (["--at", "1", "--position", "1"], "give one"),
    ],
)
def test_a_past_that_never_was_is_refused(
    muster: Muster, log: Path, words: list[str], message: str
) -> None:
    ran = muster("replay", log, *words)
    assert ran.code == 2
    assert message in ran.err


def test_an_older_log_is_upgraded_by_the_command_that_its_refusal_names(
    muster: Muster, log: Path
) -> None:
    change(log, "DROP TABLE notes")
    change(log, "DROP TABLE rank_logs")
    change(log, "UPDATE alembic_version SET version_num = '0001'")
    refused = muster("log", "verify", log)
    assert refused.code == 1
    assert "run `muster log upgrade`" in refused.err
    assert "version 0002 now; it had 0001" in muster("log", "upgrade", log).out
    assert "version 0002 already" in muster("log", "upgrade", log).out
    assert muster("log", "verify", log).code == 0


def test_a_log_that_cannot_be_upgraded_is_refused_plainly(
    muster: Muster, log: Path, export: Path, tmp_path: Path
) -> None:
    change(log, "UPDATE alembic_version SET version_num = '9999'")
    for name, message in (
        (log, "use the release that wrote it, or a newer one"),
        (export, "is in no database"),
        (tmp_path / "missing.db", "there is no log"),
    ):
        ran = muster("log", "upgrade", name)
        assert ran.code in (1, 2), name
        assert message in ran.err, name
