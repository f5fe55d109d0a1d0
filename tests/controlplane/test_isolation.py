"""An error that concerns one job fails that job; a bug stops the engine, and twice quarantines the job."""

import pytest

from adapters.clocks.simpy_clock import Killed, SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.audit.redecide import redecide
from controlplane.decisions import autonomous, reports
from controlplane.decisions import step as step_module
from controlplane.decisions.isolation import TEXT_LENGTH_MAX, bounded_text
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.effects import StopGang
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.messages import job_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from controlplane.model.phases import Phase
from controlplane.queries.queries import why
from controlplane.scheduling import scheduling_pass
from controlplane.state.image import Receipt
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from tests.controlplane import specification
from tests.instant_cluster import InstantCluster
from tests.scenarios.scenario import run_now


class System:
    """An engine on an instant cluster, started again whenever it stops because of a bug."""

    def __init__(self, *, nodes=1, resync_s=60.0, wrap=lambda cluster: cluster, on_recorded=None):
        self.env = VirtualTime()
        self.log = MemoryLog()
        inner = InstantCluster(self.env, [NodeInfo(f"n{i}", 8) for i in range(nodes)])
        self.cluster = wrap(inner)
        self.faults, self.deaths = [], []
        self.resync_s, self.on_recorded = resync_s, on_recorded
        self.start()

    def start(self):
        self._make()
        self.process = as_process(self.env, self._run())

    def _make(self):
        self.engine = Engine(
            SimpyClock(self.env),
            self.log,
            self.cluster,
            EngineOptions(resync_s=self.resync_s),
            on_recorded=self.on_recorded,
            on_fault=lambda fault, error: self.faults.append(fault),
        )

    async def _run(self):
        while True:
            try:
                await self.engine.run()
            except Killed:
                return
            except Exception as error:  # noqa: BLE001 - as a supervisor does
                self.deaths.append((self.engine.fault, error))
                if self.engine.fault is None or len(self.deaths) > 5:
                    return
                self._make()

    def after(self, seconds):
        self.env.run(self.env.now + seconds)
        return self

    def submit(self, *commands):
        answers = []
        for command in commands:
            self.engine.submit(command, answers.append)
        return answers

    @property
    def world(self):
        return self.engine.world

    def events(self, job):
        return [r.event for r in self.log.events if r.event.stream == job]

    def names(self, job):
        return [type(event).__name__ for event in self.events(job)]

    def check(self):
        """The log is what was live, and re-deciding it needs no error."""
        self.world.check()
        assert state_hash(run_now(rebuild(self.log)).world) == state_hash(self.world)
        assert run_now(redecide(self.log)) is None


def submit(job, *, gpus=1, duration_s=60.0, **changes):
    work = Workload(duration_s=duration_s)
    wanted = specification.spec(1, gpus, hints=hints_of(work), **changes)
    return specification.submit(job, job, wanted)


def gangs(*jobs):
    return [submit(job) for job in jobs]


def raising(function, job, error, *, times=None):
    """The function, which raises whenever the job is what it is about."""
    left = [times]

    def planted(*args, **named):
        about = [getattr(a, "id", None) for a in args] + [getattr(a, "job", None) for a in args]
        if job in about and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            raise error
        return function(*args, **named)

    return planted


@pytest.mark.parametrize("error", [KeyError("lost"), TypeError("odd"), ZeroDivisionError()])
def test_a_report_that_raises_fails_its_job_and_no_other(monkeypatch, error):
    system = System().after(1)
    system.submit(*gangs("a", "b", "c"))
    with monkeypatch.context() as planted:
        planted.setattr(
            "controlplane.decisions.decider.ranks_reported",
            _of_job("b", reports.ranks_reported, error),
        )
        system.after(1)
    system.after(100)

    assert [system.world.jobs[job].phase.value for job in "abc"] == [
        "Succeeded",
        "Failed",
        "Succeeded",
    ]
    failed = system.world.jobs["b"]
    assert failed.reason == "platform_error"
    errored = next(event for event in system.events("b") if isinstance(event, e.JobErrored))
    assert (errored.where, errored.error) == ("decide ReportRanks", type(error).__name__)
    assert type(error).__name__ in why(system.world, failed).summary
    assert not system.deaths
    assert not system.world.devices.live, "its devices were given back"
    system.check()


def _of_job(job, function, error):
    def planted(world, report, now):
        if report.job == job and not world.jobs[job].finished:
            raise error
        return function(world, report, now)

    return planted


def test_what_is_due_and_raises_fails_its_job(monkeypatch):
    system = System().after(1)
    late = submit("b", duration_s=1e6, active_deadline_s=30.0)
    system.submit(*gangs("a"), late)
    monkeypatch.setattr(
        autonomous, "fire_timers", raising(autonomous.fire_timers, "b", KeyError("due"))
    )
    system.after(200)

    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    assert system.world.jobs["b"].reason == "platform_error"
    monkeypatch.undo()
    system.check()


@pytest.mark.parametrize("jobs", ["b", "bd"])
def test_a_scheduling_pass_that_raises_fails_only_those_whose_data_makes_it_raise(
    monkeypatch, jobs
):
    system = System(nodes=2).after(1)
    look_at = scheduling_pass.Pass._try_to_start

    def planted(self, gang):
        if gang.id in jobs:
            raise IndexError(f"gang {gang.id}")
        return look_at(self, gang)

    monkeypatch.setattr(scheduling_pass.Pass, "_try_to_start", planted)
    answers = system.submit(*gangs(*"abcde"))
    system.after(100)

    assert [type(answer) for answer in answers] == [Receipt] * 5
    phases = {job: system.world.jobs[job].phase.value for job in "abcde"}
    assert phases == {job: "Failed" if job in jobs else "Succeeded" for job in "abcde"}
    assert {system.world.jobs[job].reason for job in jobs} == {"platform_error"}
    assert not system.deaths
    monkeypatch.undo()
    system.check()


def test_two_jobs_that_raise_only_together_cost_the_later_one_alone(monkeypatch):
    system = System(nodes=2).after(1)
    run = scheduling_pass.Pass.run

    def planted(self):
        waiting = {key.job for q in self.snapshot.cluster.queue_indexes.values() for key in q.order}
        if {"b", "d"} <= waiting:
            raise KeyError("b and d")
        return run(self)

    monkeypatch.setattr(scheduling_pass.Pass, "run", planted)
    system.submit(*gangs(*"abcde"))
    system.after(100)

    failed = [job for job in "abcde" if system.world.jobs[job].phase is Phase.FAILED]
    assert failed == ["d"]


def test_an_error_that_is_no_jobs_stops_the_engine_and_blames_none(monkeypatch):
    system = System().after(1)
    monkeypatch.setattr(scheduling_pass.Pass, "run", lambda self: 1 / 0)
    system.submit(*gangs("a", "b"))
    system.after(1)

    assert [(fault, type(error)) for fault, error in system.deaths] == [(None, ZeroDivisionError)]
    assert not {"JobErrored", "EngineFailed"} & {*system.names("a"), *system.names("b")}


class Thrower:
    """A cluster that raises for one job in some operations."""

    def __init__(self, cluster, job, effects):
        self.cluster, self.job, self.effects = cluster, job, effects
        self.calls = []

    async def connect(self, report):
        await self.cluster.connect(report)

    async def carry_out(self, effects):
        self.calls.append(len(effects))
        for effect in effects:
            name = type(effect).__name__
            if name in self.effects and getattr(effect, "job_id", "") in ("", self.job):
                raise OSError(f"no {name}")
            await self.cluster.carry_out([effect])


@pytest.mark.parametrize("effect", ["LaunchGang", "StopGang", "Tidy", "Survey"])
def test_an_effect_that_raises_loses_no_other_effect(effect):
    system = System(resync_s=20.0, wrap=lambda cluster: Thrower(cluster, "b", (effect,)))
    if effect == "Survey":
        system.after(1)
        system.cluster.effects = ()
    system.after(30)
    answers = system.submit(*gangs(*"abc"))
    system.after(1)
    cancelled = system.submit(c.CancelJob(id="x", namespace="default", name="b"))
    system.after(100)
    system.cluster.effects = ()
    system.after(100)

    assert len(answers) + len(cancelled) == 4
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    assert system.world.jobs["c"].phase is Phase.SUCCEEDED
    assert system.world.jobs["b"].finished
    assert not system.world.devices.live
    assert not system.deaths
    thrown = {fault.where for fault in system.faults}
    assert thrown == {f"carry_out {effect}"}
    system.check()


def test_a_launch_that_raises_fails_the_job_with_the_error_as_facts():
    system = System(wrap=lambda cluster: Thrower(cluster, "b", ("LaunchGang",))).after(1)
    system.submit(*gangs(*"abc"))
    system.after(100)

    errored = next(event for event in system.events("b") if isinstance(event, e.JobErrored))
    assert errored == e.JobErrored("b", "carry_out LaunchGang", "OSError", "no LaunchGang", 1)
    assert job_text(system.world.jobs["b"]) == "carry_out LaunchGang: OSError: no LaunchGang"
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    system.check()


def test_a_job_whose_wants_cannot_be_read_fails_alone(monkeypatch):
    system = System().after(1)
    newly = step_module.newly_wanted

    def planted(before, job):
        if job.id == "b" and not job.finished:
            raise IndexError("which rank?")
        return newly(before, job)

    monkeypatch.setattr(step_module, "newly_wanted", planted)
    system.submit(*gangs(*"abc"))
    system.after(100)

    assert system.world.jobs["b"].reason == "platform_error"
    assert system.world.jobs["c"].phase is Phase.SUCCEEDED
    system.check()


def test_a_submission_that_raises_is_refused_and_the_engine_goes_on(monkeypatch):
    for error in (AssertionError("bug"), KeyError("kind")):
        system = System().after(1)
        admit = "controlplane.decisions.decider.admit"

        def planted(world, command, error=error):
            if command.job == "b":
                raise error

        with monkeypatch.context() as patched:
            patched.setattr(admit, planted)
            answers = system.submit(*gangs(*"abc"))
            system.after(1)
        system.after(100)

        assert isinstance(answers[1], Rejected)
        assert answers[1].code == "platform_error"
        assert "b" not in system.world.jobs
        assert system.world.jobs["c"].phase is Phase.SUCCEEDED
        assert not system.deaths


def test_a_request_that_raises_is_refused_and_leaves_the_job_alone(monkeypatch):
    system = System().after(1)
    system.submit(*gangs("a"))
    system.after(1)
    monkeypatch.setattr("controlplane.decisions.decider._amend", lambda draft, command: 1 / 0)
    answers = system.submit(c.AmendJob(id="x", namespace="default", name="a", ttl_s=5.0))
    system.after(100)

    assert [answer.code for answer in answers] == ["platform_error"]
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    system.check()


def test_a_cancel_that_raises_ends_the_job_all_the_same(monkeypatch):
    system = System().after(1)
    system.submit(*gangs("a", "b"))
    system.after(1)
    monkeypatch.setattr("controlplane.decisions.decider.settle", raising_settle("a"))
    answers = system.submit(c.CancelJob(id="x", namespace="default", name="a"))
    system.after(100)

    assert [answer.code for answer in answers] == ["platform_error"]
    assert system.world.jobs["a"].reason == "platform_error"
    assert system.world.jobs["b"].phase is Phase.SUCCEEDED


def raising_settle(job):
    def planted(draft):
        if draft.job.id == job:
            raise KeyError(job)
        return draft

    return planted


def test_a_lost_node_fails_only_the_job_that_cannot_bear_it(monkeypatch):
    system = System(nodes=1).after(1)
    system.submit(*gangs(*"abc"))
    system.after(1)
    settle = reports.settle

    def planted(draft):
        if draft.job.id == "b":
            raise KeyError("b")
        return settle(draft)

    monkeypatch.setattr(reports, "settle", planted)
    system.cluster.lose("n0")
    system.after(1)
    system.cluster.restore("n0")
    system.after(300)

    assert system.world.jobs["b"].reason == "platform_error"
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    assert system.world.jobs["c"].phase is Phase.SUCCEEDED
    assert not system.deaths


# ------------------------------------------------------------------ bugs


def test_a_job_that_stops_the_engine_twice_is_quarantined_and_the_third_leads(monkeypatch):
    system = System().after(1)
    look_at = scheduling_pass.Pass._try_to_start

    def planted(self, gang):
        assert gang.id != "b", "placed twice"
        return look_at(self, gang)

    monkeypatch.setattr(scheduling_pass.Pass, "_try_to_start", planted)
    system.submit(*gangs(*"abc"))
    system.after(100)

    assert [(fault.job, fault.input) for fault, _ in system.deaths] == [
        ("b", "schedule: AssertionError")
    ] * 2
    assert system.names("b") == [
        "JobSubmitted",
        "EngineFailed",
        "EngineFailed",
        "JobQuarantined",
        "JobFailed",
    ]
    job = system.world.jobs["b"]
    assert (job.phase, job.reason, job.quarantined) == (Phase.FAILED, "quarantined", True)
    assert "placed twice" in why(system.world, job).summary
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    assert system.world.jobs["c"].phase is Phase.SUCCEEDED
    monkeypatch.undo()
    system.check()


def test_a_report_that_is_a_bug_quarantines_its_job_and_its_devices_come_back(monkeypatch):
    system = System(resync_s=5.0).after(1)
    reported = reports.ranks_reported

    def planted(world, report, now):
        assert report.job != "b" or world.jobs["b"].finished, "b again"
        return reported(world, report, now)

    monkeypatch.setattr("controlplane.decisions.decider.ranks_reported", planted)
    system.submit(*gangs(*"abc"))
    system.after(1)
    assert "b" in system.world.devices.live or system.world.jobs["b"].quarantined
    system.after(100)

    assert len(system.deaths) == 2
    assert system.world.jobs["b"].quarantined
    assert not system.world.devices.live
    assert system.world.jobs["c"].phase is Phase.SUCCEEDED
    monkeypatch.undo()
    system.check()


def test_an_error_while_an_event_is_applied_leaves_nothing_half_applied(monkeypatch):
    system = System().after(1)
    follow = World._update_job

    def planted(self, before, after):
        if after.id == "b" and after.phase is Phase.STARTING:
            raise KeyError("index")
        follow(self, before, after)

    monkeypatch.setattr(World, "_update_job", planted)
    system.submit(*gangs(*"abc"))
    system.after(1)

    assert [fault.where for fault, _ in system.deaths] == ["apply GangPlaced"] * 2
    assert "GangPlaced" not in system.names("b")
    system.after(100)
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    monkeypatch.undo()
    system.check()


def test_deaths_are_remembered_by_the_log_and_not_by_the_process(monkeypatch):
    system = System().after(1)
    look_at = scheduling_pass.Pass._try_to_start

    def planted(self, gang):
        assert gang.id != "b"
        return look_at(self, gang)

    monkeypatch.setattr(scheduling_pass.Pass, "_try_to_start", planted)
    system.submit(*gangs(*"ab"))

    async def once():
        await system.engine.run()

    # A process that dies with its engine, as if nothing supervised it.
    system.process.interrupt()
    for _ in range(2):
        system.engine = Engine(SimpyClock(system.env), system.log, system.cluster)
        life = as_process(system.env, once())
        system.submit(*gangs(*"ab"))
        with pytest.raises(AssertionError):
            system.env.run(until=life)
    system.start()
    system.after(100)

    assert system.world.jobs["b"].quarantined
    assert system.world.jobs["a"].phase is Phase.SUCCEEDED


def test_another_bug_of_the_same_job_is_another_input(monkeypatch):
    system = System(resync_s=5.0).after(1)
    errors = [KeyError("one"), ValueError("two"), ValueError("three")]
    follow = World._update_job

    def planted(self, before, after):
        if after.id == "a" and after.phase is Phase.RUNNING and errors:
            raise errors.pop(0)
        follow(self, before, after)

    monkeypatch.setattr(World, "_update_job", planted)
    system.submit(*gangs("a"))
    system.after(30)

    inputs = [fault.input.partition(": ")[2] for fault, _ in system.deaths]
    assert inputs == ["KeyError", "ValueError", "ValueError"]
    assert system.names("a").index("JobQuarantined") > system.names("a").index("EngineFailed") + 2


def test_a_quarantined_job_can_only_be_deleted(monkeypatch):
    system = System().after(1)
    quarantine = c.QuarantineJob(job="a", where="test", error="X", text="y")
    system.submit(submit("a", duration_s=1e6, ttl_s=1.0))
    system.after(1)
    system.submit(quarantine, quarantine)
    system.after(50)
    job = system.world.jobs["a"]
    assert job.quarantined
    assert job.live_attempt is None, "its ranks were stopped"
    whose = {"namespace": "default", "name": "a"}

    answers = system.submit(
        c.ResumeJob(id="1", **whose),
        c.ScaleJob(id="2", role="Worker", replicas=2, **whose),
        c.AmendJob(id="3", ttl_s=1.0, **whose),
        c.CancelJob(id="4", **whose),
        c.SuspendJob(id="5", **whose),
    )
    system.after(50)
    assert [answer.code for answer in answers] == ["quarantined"] * 5
    assert "a" in system.world.jobs, "no time to live ends it"
    assert system.names("a").count("JobQuarantined") == 1

    system.submit(c.DeleteJob(id="6", **whose))
    system.after(10)
    assert "a" not in system.world.jobs
    assert not system.world.phases.quarantined
    system.check()


def test_devices_of_a_quarantined_job_are_held_until_its_ranks_are_gone():
    system = System().after(1)
    system.submit(submit("a", gpus=8, duration_s=1e6))
    system.after(1)
    stops = []

    async def refuses(effects):
        stops.extend(effects)

    system.cluster.carry_out, carry_out = refuses, system.cluster.carry_out
    system.submit(c.QuarantineJob(job="a", where="test", error="X"), *gangs("b"))
    system.after(5)
    assert any(isinstance(effect, StopGang) for effect in stops)
    assert system.world.jobs["b"].phase is Phase.QUEUED
    system.cluster.carry_out = carry_out
    system.after(200)
    assert system.world.jobs["b"].phase is Phase.SUCCEEDED


def test_an_observer_that_raises_stops_nothing():
    def observer(batch):
        raise RuntimeError("I cannot look")

    system = System(on_recorded=observer).after(1)
    system.submit(*gangs("a"))
    system.after(100)

    assert system.world.jobs["a"].phase is Phase.SUCCEEDED
    assert {fault.where for fault in system.faults} == {"on_recorded"}


def test_the_text_of_an_error_is_bounded_and_printable():
    class Unprintable(Exception):
        def __str__(self):
            raise ValueError

    assert bounded_text(Unprintable()) == ""
    assert bounded_text(KeyError("a\n\x00b\ud800")) == "'a\\n\\x00b\\ud800'"
    assert bounded_text(ValueError("a\n\x00b\ud800 c")) == "a b? c"
    assert len(bounded_text(ValueError("x" * 10_000_000))) == TEXT_LENGTH_MAX
