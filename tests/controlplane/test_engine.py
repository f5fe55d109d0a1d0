"""The loop: log first, effects read off the state, questions between steps."""

from adapters.clocks.simpy_clock import Killed, SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from controlplane.engine import COMMANDS_PER_APPEND_MAX, Engine, EngineOptions
from controlplane.lifecycle.effects import LaunchGang, StopGang, Survey
from controlplane.log import snapshots
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import SnapshotEncoder, state_hash, take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import LogConflict, LogUnavailable, Rejected
from controlplane.state import state
from controlplane.state.image import Receipt
from simulator.kernel.virtual_time import VirtualTime
from tests.controlplane.specification import exited, spec, submit
from tests.scenarios.faulty_ports import Sleep
from tests.scenarios.scenario import run_now


class SlowLog(MemoryLog):
    """Takes a second for each append, so that there is a meanwhile to look into."""

    def __init__(self, env):
        super().__init__()
        self.env = env
        self.appends = []
        self.refuses = None

    async def append(self, batch, *, epoch):
        await Sleep(self.env, 1.0)
        if self.refuses is not None:
            raise self.refuses
        await super().append(batch, epoch=epoch)
        self.appends.append(len(batch))


class Recorder:
    """A cluster that only remembers what it was asked for."""

    def __init__(self):
        self.asked = []
        self.report = None

    async def connect(self, report):
        self.report = report

    async def carry_out(self, effects):
        self.asked += effects


class Setup:
    def __init__(self, log=None, **options):
        self.env = VirtualTime()
        self.log = log or SlowLog(self.env)
        self.cluster = Recorder()
        self.seen = []
        self.failure = None
        self.start(**options)

    def start(self, **options):
        self.engine = Engine(
            SimpyClock(self.env),
            self.log,
            self.cluster,
            EngineOptions(**{"resync_s": None, **options}),
            self.seen.extend,
        )
        self.process = as_process(self.env, self._run(self.engine))
        return self

    async def _run(self, engine):
        try:
            await engine.run()
        except (LogUnavailable, LogConflict) as error:
            self.failure = error
        except Killed:
            pass

    def after(self, seconds):
        self.env.run(self.env.now + seconds)
        return self

    def ready(self):
        """An engine that leads and knows a node."""
        self.after(2)
        self.cluster.report(c.ReportCluster(up=(NodeInfo("n1", 8),)))
        return self.after(2)

    def submit(self, command):
        """A list that will hold the answer."""
        answers = []
        self.engine.submit(command, answers.append)
        return answers


def test_a_reply_comes_after_the_append_and_never_before():
    setup = Setup().ready()
    answers = setup.submit(submit())

    setup.after(0.9)
    assert answers == []
    setup.after(0.2)

    assert [type(answer) for answer in answers] == [Receipt]
    assert answers[0].stream == "j1"


def test_an_effect_leaves_after_the_append_and_never_before():
    setup = Setup().ready()
    setup.cluster.asked.clear()
    setup.submit(submit())

    setup.after(0.9)
    assert setup.cluster.asked == []
    setup.after(0.2)

    assert [type(effect) for effect in setup.cluster.asked] == [LaunchGang]


def test_a_question_is_answered_between_steps():
    setup = Setup().ready()
    setup.submit(submit())
    setup.after(0.5)
    heard = []

    setup.engine.ask(lambda world: heard.append(world.position))
    assert heard == []
    setup.after(1)

    assert heard == [len(setup.log.events)]
    setup.engine.ask(lambda world: heard.append(world.position))
    assert len(heard) == 2


def test_all_that_arrive_together_share_one_append():
    setup = Setup().ready()
    before = len(setup.log.appends)
    for n in range(50):
        setup.submit(submit(f"job-{n}", f"j{n}"))

    setup.after(3)

    assert len(setup.log.appends) == before + 1


def test_all_commands_that_arrive_during_an_append_are_taken_by_the_next_step():
    setup = Setup().ready()
    before = len(setup.log.appends)
    setup.submit(submit("first", "j1"))
    setup.after(0.5)
    answers = [setup.submit(submit(f"job-{n}", f"k{n}")) for n in range(3)]

    setup.after(3)

    assert len(setup.log.appends) == before + 2
    assert all(isinstance(answer[0], Receipt) for answer in answers)


def test_one_step_takes_only_so_many_commands():
    setup = Setup().ready()
    answers = [
        setup.submit(submit(f"job-{n}", f"j{n}")) for n in range(COMMANDS_PER_APPEND_MAX + 10)
    ]
    before = len(setup.log.appends)

    setup.after(5)

    assert len(setup.log.appends) == before + 2
    assert all(isinstance(a[0], Receipt) for a in answers)


def test_what_comes_while_many_are_taken_in_waits_behind_them():
    setup = Setup().ready()
    for n in range(2 * COMMANDS_PER_APPEND_MAX):
        setup.submit(submit(f"job-{n}", f"j{n}"))
    setup.after(0.5)
    late = setup.submit(submit("late", "late"))

    setup.after(5)

    assert isinstance(late[0], Receipt)
    submitted = [x for x in setup.log.events if isinstance(x.event, e.JobSubmitted)]
    assert submitted[-1].event.name == "late"
    # All that came together is of one instant, and the late one is not.
    assert len({x.at for x in submitted[:-1]}) == 1
    assert submitted[-1].at > submitted[0].at


def test_the_same_command_id_gets_the_first_answer_and_appends_nothing():
    setup = Setup().ready()
    first, second = setup.submit(submit()), setup.submit(submit())
    setup.after(2)
    end = len(setup.log.events)
    third = setup.submit(submit())

    setup.after(2)

    assert second == third == first
    assert len(setup.log.events) == end


def test_an_answer_is_remembered_across_a_restart():
    setup = Setup().ready()
    first = setup.submit(submit())
    setup.after(2)
    setup.process.interrupt()
    setup.after(1)

    setup.start().after(3)
    again = setup.submit(submit())
    setup.after(2)

    assert again == first


def test_of_many_answers_the_oldest_are_forgotten_together(monkeypatch):
    monkeypatch.setattr(state, "RECEIPTS_MAX", 10)
    monkeypatch.setattr(state, "RECEIPTS_FORGOTTEN", 3)
    setup = Setup().ready()
    answers = [setup.submit(submit(f"job-{n}", f"j{n}")) for n in range(11)]
    setup.after(3)

    remembered = list(setup.engine.world.receipts)
    again = setup.submit(submit("job-3", "j3"))
    forgotten = setup.submit(submit("job-2", "j2"))
    setup.after(3)

    assert remembered == [f"cmd-j{n}" for n in range(3, 11)]
    assert again == answers[3]
    # A forgotten command counts as a new one, and its name is taken by its own job.
    assert isinstance(forgotten[0], Rejected)


def test_a_refusal_is_answered_and_not_recorded():
    setup = Setup().ready()
    end = len(setup.log.events)

    answers = setup.submit(submit(name="Not A Name"))
    setup.after(2)

    assert isinstance(answers[0], Rejected)
    assert len(setup.log.events) == end


def test_when_the_log_refuses_the_engine_stops_and_no_caller_is_left_waiting():
    setup = Setup().ready()
    setup.log.refuses = LogUnavailable("the disk is full")
    answers = setup.submit(submit())
    setup.after(0.5)
    late, heard = setup.submit(submit("two", "j2")), []
    setup.engine.ask(heard.append)

    setup.after(2)

    assert str(setup.failure) == "the disk is full"
    assert answers == late == heard == [None]
    assert setup.submit(submit("three", "j3")) == [None]
    setup.engine.ask(heard.append)
    assert heard == [None, None]


def test_what_a_failed_step_decided_is_not_known_to_the_next_engine():
    setup = Setup().ready()
    setup.log.refuses = LogUnavailable("the disk is full")
    setup.submit(submit())
    setup.after(2)
    setup.log.refuses = None

    setup.start().after(3)

    assert not setup.engine.world.jobs


def test_a_second_engine_fences_the_first_one_out():
    setup = Setup().ready()
    first = setup.engine
    setup.start().after(3)
    answers = []

    first.submit(submit(), answers.append)
    setup.after(3)

    assert isinstance(setup.failure, LogConflict)
    assert answers == [None]
    assert not setup.engine.world.jobs
    assert setup.engine.leads


def test_after_a_restart_everything_wanted_is_asked_for_again():
    setup = Setup().ready()
    setup.submit(submit())
    setup.submit(submit("other", "j2"))
    setup.after(2)
    setup.cluster.report(exited(0))
    setup.cluster.report(exited(1))
    setup.after(2)
    setup.process.interrupt()
    setup.after(1)
    setup.cluster.asked.clear()

    setup.start().after(3)

    assert setup.cluster.asked[0] == Survey()
    assert [(type(x), x.job_id) for x in setup.cluster.asked[1:]] == [(LaunchGang, "j2")]


def test_after_a_restart_gangs_are_asked_for_in_the_order_in_which_they_were_placed():
    setup = Setup().ready()
    for name in ("j3", "j1", "j2"):
        setup.submit(submit(name, name, of=spec(workers=1, gpus=1)))
        setup.after(3)
    setup.process.interrupt()
    setup.cluster.asked.clear()

    setup.start().after(3)

    launched = [effect.job_id for effect in setup.cluster.asked if isinstance(effect, LaunchGang)]
    assert launched == ["j3", "j1", "j2"]


def test_everything_wanted_is_asked_for_again_now_and_then():
    setup = Setup(resync_s=60.0).ready()
    setup.submit(submit())
    setup.after(5)
    setup.cluster.asked.clear()

    setup.after(121)

    kinds = [type(effect) for effect in setup.cluster.asked]
    assert kinds == [Survey, LaunchGang] * 2


def test_a_stop_is_asked_for_when_the_verdict_is_in_the_log():
    setup = Setup().ready()
    setup.submit(submit())
    setup.after(2)
    setup.cluster.asked.clear()

    setup.submit(c.CancelJob(namespace="default", name="train"))
    setup.after(2)

    assert [type(effect) for effect in setup.cluster.asked] == [StopGang]


def test_timers_in_the_log_fire_after_a_restart():
    setup = Setup().ready()
    setup.submit(submit(of=spec(active_deadline_s=100)))
    setup.after(2)
    setup.process.interrupt()
    setup.after(200)

    setup.start().after(3)

    assert setup.engine.world.jobs["j1"].reason == "deadline_exceeded"


def test_a_restart_with_a_snapshot_and_without_gives_the_same_world():
    setup = Setup(snapshot_every=1).ready()
    for n in range(5):
        setup.submit(submit(f"job-{n}", f"j{n}"))
        setup.after(2)

    hashes = {
        state_hash(run_now(rebuild(setup.log, use_snapshot=use)).world) for use in (True, False)
    }

    assert run_now(setup.log.latest_snapshot()).position == setup.engine.world.position
    assert hashes == {state_hash(setup.engine.world)}


def test_a_start_that_read_a_long_tail_takes_a_snapshot_for_the_next_one():
    setup = Setup(snapshot_every=None).ready()
    for n in range(5):
        setup.submit(submit(f"job-{n}", f"j{n}"))
        setup.after(2)
    setup.process.interrupt()
    setup.after(1)

    setup.start(snapshot_every=6).after(3)
    setup.submit(submit("job-5", "j5"))
    setup.after(3)

    saved = run_now(setup.log.latest_snapshot())
    assert saved is not None
    early = run_now(rebuild(setup.log, position=saved.position, use_snapshot=False))
    assert saved == take_snapshot(early.world, early.hash)


def test_observers_see_every_event_once_and_only_from_the_log():
    setup = Setup().ready()
    setup.submit(submit())
    setup.after(2)

    assert setup.seen == list(setup.log.events)


def test_time_in_the_log_never_runs_backwards():
    setup = Setup().ready()
    past = setup.env
    setup.process.interrupt()
    setup.after(1_000)
    setup.start().after(5)
    latest = setup.engine.world.at
    clock = SimpyClock(past, origin=-900.0)
    engine = Engine(clock, setup.log, setup.cluster, EngineOptions(resync_s=None))
    as_process(setup.env, setup._run(engine))

    setup.after(5)

    assert engine.leads
    assert engine.world.at == latest


def test_every_start_is_in_the_log():
    setup = Setup().ready()
    setup.process.interrupt()
    setup.after(1)
    setup.start().after(3)

    starts = [r.event for r in setup.log.events if isinstance(r.event, e.EngineStarted)]
    assert [start.epoch for start in starts] == [1, 2]


def test_commands_are_met_while_a_large_snapshot_is_being_made(monkeypatch):
    monkeypatch.setattr(snapshots, "FRAME_ITEMS", 1)
    setup, answers, ahead = Setup(snapshot_every=6).ready(), [], []
    encode_more, save = SnapshotEncoder.encode_more, setup.log.save_snapshot

    def encode_and_submit(encoder):
        # A submission between the first frame and the last.
        if not answers:
            answers.append(setup.submit(submit("meanwhile", "jm")))
        return encode_more(encoder)

    async def save_and_look(snapshot):
        ahead.append((len(answers[0]), setup.engine.world.position - snapshot.position))
        await save(snapshot)

    monkeypatch.setattr(SnapshotEncoder, "encode_more", encode_and_submit)
    monkeypatch.setattr(setup.log, "save_snapshot", save_and_look)
    for n in range(4):
        setup.submit(submit(f"job-{n}", f"j{n}"))
        setup.after(2)

    # It was answered before the snapshot was whole, and is not in it.
    assert ahead == [(1, 2)]
    saved = run_now(setup.log.latest_snapshot())
    early = run_now(rebuild(setup.log, position=saved.position, use_snapshot=False))
    assert "jm" not in early.world.jobs
    assert saved == take_snapshot(early.world, early.hash)
