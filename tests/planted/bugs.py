"""The bugs: each one is a small change that a tired person could make."""

from typing import NamedTuple


class Bug(NamedTuple):
    """`old` is replaced by `new` in `file`; `suites` are the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    suites: tuple[str, ...]


CORE = ("tests/controlplane",)
WORLDS = ("tests/scenarios/test_scenarios.py",)
LOGS = ("tests/contracts/test_event_log.py",)
CLUSTER = ("tests/contracts/test_cluster.py", "tests/adapters/test_simulated_cluster.py")
API = ("tests/api",)
KUBERNETES = ("tests/adapters/kubernetes",)
KINDS = ("tests/controlplane/kinds",)
SCHEDULING = (
    "tests/controlplane/test_scheduling_features.py",
    "tests/controlplane/test_scheduling_properties.py",
)
PHYSICS = ("tests/simulator", "tests/adapters/test_simulated_training.py")
STUDIES = ("tests/studies",)
REDACTION = ("tests/incidents/test_redaction.py",)
REPLICAS = ("tests/cli/test_standby.py",)
TELEMETRY = ("tests/adapters/prometheus",)

_APPEND_THEN_ANSWER = (
    "                if step.batch:\n"
    "                    await self._log.append(step.batch, epoch=self._epoch)\n"
    "                self._answer(step)\n"
)

OPERATOR = ("tests/adapters/kubernetes/operator",)

BUGS = (
    Bug(
        "operator: a job goes because a list lacks its resource",
        "adapters/kubernetes/operator/operator.py",
        "if uid in self._gone or await self._is_gone(job):",
        "if True:",
        OPERATOR,
    ),
    Bug(
        "operator: what people asked of Muster is undone by an old resource",
        "adapters/kubernetes/operator/judging.py",
        "if job.deleting or generation == observed_generation(document):",
        "if job.deleting:",
        OPERATOR,
    ),
    Bug(
        "operator: an event has another name each time",
        "adapters/kubernetes/operator/happenings.py",
        'Happening(f"{each.position:x}-{number}", each.at',
        'Happening(f"{id(each):x}-{number}", each.at',
        OPERATOR,
    ),
    Bug(
        "operator: a resource that was deleted meanwhile is not missed",
        "adapters/kubernetes/operator/operator.py",
        "for uid in await self._desk.ask(orphans):",
        "for uid in ():",
        OPERATOR,
    ),
    Bug(
        "lease: another one's is taken before it is over",
        "adapters/kubernetes/lease.py",
        "if now >= free_at:",
        "if now >= free_at - 5:",
        ("tests/adapters/kubernetes/test_lease.py",),
    ),
    Bug(
        "lease: a holder that cannot renew goes on",
        "adapters/kubernetes/election.py",
        "if now >= self._since + self._terms.deadline_s:",
        "if now >= self._since + 3 * self._terms.deadline_s:",
        ("tests/adapters/kubernetes/test_lease.py",),
    ),
    Bug(
        "lease: every look starts the time anew",
        "adapters/kubernetes/lease.py",
        "return Seen(lease, before.since)",
        "return Seen(lease, now)",
        ("tests/adapters/kubernetes/test_lease.py",),
    ),
    Bug(
        "replicas: what is handed on is handed on again",
        "api/forwarding.py",
        "if FORWARDED in request.headers:",
        "if FORWARDED in request.rel_url.query:",
        REPLICAS,
    ),
    Bug(
        "replicas: who lost the election goes on leading",
        "cli/supervisor.py",
        "work.append(asyncio.create_task(election.lost()))",
        "pass",
        REPLICAS,
    ),
    Bug(
        "replicas: who cannot read the log stands for election",
        "cli/standby.py",
        "election = asyncio.create_task(elected)\n        following",
        "election = asyncio.create_task(elected)\n        await election\n        following",
        REPLICAS,
    ),
    Bug(
        "supplies: a restart gets the newest code",
        "adapters/kubernetes/supplies.py",
        '"REF": commit or code.ref or "HEAD"',
        '"REF": code.ref or "HEAD"',
        ("tests/adapters/kubernetes/test_supplies.py",),
    ),
    Bug(
        "telemetry: bytes are taken for mebibytes",
        "adapters/prometheus/series.py",
        '"nvidia_gpu_memory_used_bytes", "used", _MIB',
        '"nvidia_gpu_memory_used_bytes", "used", 1.0',
        TELEMETRY,
    ),
    Bug(
        "telemetry: a server that failed is asked again at once",
        "adapters/prometheus/telemetry.py",
        "self._paused_until = self._clock.now() + PAUSE_S",
        "self._paused_until = 0.0",
        TELEMETRY,
    ),
    Bug(
        "studies: a checkpoint that is only half written counts",
        "studies/checkpointing.py",
        "math.floor(ran_s",
        "math.ceil(ran_s",
        STUDIES,
    ),
    Bug(
        "studies: an attempt does not know the one before it",
        "studies/recorder.py",
        "self.previous.append(self._attempt[job])",
        "self.previous.append(-1)",
        STUDIES,
    ),
    Bug(
        "studies: differences are not taken pair by pair",
        "studies/comparison.py",
        "None if a is None or b is None else a - b",
        "None if a is None or b is None else a",
        STUDIES,
    ),
    Bug(
        "studies: rows are counted instead of lines",
        "studies/workloads/csv_trace.py",
        "self.lines.append(reader.line_num)",
        "self.lines.append(len(self.rows))",
        STUDIES,
    ),
    Bug(
        "studies: what was computed before an interruption is computed again",
        "studies/store.py",
        "        return document if isinstance(document, dict) else None",
        "        return None",
        STUDIES,
    ),
    Bug(
        "SQLite: the fence does not look at the epoch",
        "adapters/sqlite_log/log.py",
        "WHERE epoch = ? AND position = ?",
        "WHERE epoch >= ? AND position = ?",
        LOGS,
    ),
    Bug(
        "PostgreSQL: the fence does not look at the epoch",
        "adapters/postgres_log.py",
        "WHERE epoch = $1 AND",
        "WHERE epoch >= $1 AND",
        LOGS,
    ),
    Bug(
        "memory log: the fence does not look at the epoch",
        "adapters/memory_log.py",
        "if epoch != self._epoch or batch[0]",
        "if batch[0]",
        LOGS,
    ),
    Bug(
        "engine: replies go out before the append",
        "controlplane/engine.py",
        _APPEND_THEN_ANSWER,
        "                self._answer(step)\n                if step.batch:\n"
        "                    await self._log.append(step.batch, epoch=self._epoch)\n",
        WORLDS,
    ),
    Bug(
        "engine: effects leave before the append",
        "controlplane/engine.py",
        _APPEND_THEN_ANSWER,
        "                await self._cluster.carry_out(step.effects())\n" + _APPEND_THEN_ANSWER,
        WORLDS,
    ),
    Bug(
        "engine: a question is answered in the middle of a step",
        "controlplane/engine.py",
        "elif self._leads and self._step is None:",
        "elif self._leads:",
        CORE,
    ),
    Bug(
        "engine: after a start nothing is asked for again",
        "controlplane/engine.py",
        "        self._answer(step)\n        await self._ask_for_everything()",
        "        self._answer(step)",
        CORE,
    ),
    Bug(
        "engine: the log follows a clock that runs backwards",
        "controlplane/engine.py",
        "max(self._clock.now(), self.world.at)",
        "self._clock.now()",
        WORLDS,
    ),
    Bug(
        "engine: the same command id is decided again",
        "controlplane/engine.py",
        "known = world.receipts.get(command.id) if command.id else None",
        "known = None",
        WORLDS,
    ),
    Bug(
        "world: timers are not restored after a restart",
        "controlplane/world.py",
        "            self._note_claim(job)\n        self._note_deadline(job)",
        "            self._note_claim(job)",
        WORLDS,
    ),
    Bug(
        "settling: a draft's job was folded at another position than its events get",
        "controlplane/draft.py",
        "self.job, event, self.now, self.position)",
        "self.job, event, self.now, 0)",
        WORLDS,
    ),
    Bug(
        "tenancy: ranks that got other devices keep the old ones",
        "controlplane/tenancy.py",
        "            if held:\n                left.append(i)",
        "            if held and not holds:\n                left.append(i)",
        CORE,
    ),
    Bug(
        "state: a snapshot forgets the answers given",
        "controlplane/state.py",
        "self.receipts = {cause: Receipt(at, stream) for cause, at, stream in image.receipts}",
        "self.receipts = {}",
        CORE,
    ),
    Bug(
        "attempt: devices are free as soon as the gang is told to stop",
        "controlplane/attempt_life.py",
        "return _changed(replace(attempt, state=state), _dismissed(attempt.ranks))",
        "return _changed(replace(attempt, state=state), [(i, replace(r, state=RankState.GONE))"
        " for i, r in enumerate(attempt.ranks)])",
        WORLDS,
    ),
    Bug(
        "job: a finished job can be cancelled",
        "controlplane/job.py",
        "Phase.CANCELLED for phase in UNFINISHED},",
        "Phase.CANCELLED for phase in Phase},",
        CORE,
    ),
    Bug(
        "restart: code 128 counts as permanent",
        "controlplane/restart.py",
        "PERMANENT_CODE_MAX = 127",
        "PERMANENT_CODE_MAX = 128",
        CORE,
    ),
    Bug(
        "restart: the budget is one too large",
        "controlplane/restart.py",
        "job.failures >= policy.limit",
        "job.failures > policy.limit",
        CORE,
    ),
    Bug(
        "restart: jitter from a hash that differs between processes",
        "controlplane/restart.py",
        'zlib.crc32(f"{key}/{streak}".encode()) / 2**32',
        '(hash(f"{key}/{streak}") % 2**32) / 2**32',
        WORLDS,
    ),
    Bug(
        "reports: a report on another attempt is believed",
        "controlplane/reports.py",
        " or job.attempt.number != report.attempt",
        "",
        CORE,
    ),
    Bug(
        "settling: a job is removed while its ranks are there",
        "controlplane/deadlines.py",
        "if spec.ttl_s is None or not is_over:",
        "if spec.ttl_s is None:",
        CORE,
    ),
    Bug(
        "placement: a gang is placed though some ranks found no room",
        "controlplane/scheduling/placement.py",
        "                return chosen\n    return None",
        "                return chosen\n    return chosen or None",
        CORE,
    ),
    Bug(
        "codec: the chain does not cover who did it",
        "controlplane/codec.py",
        "version, cause, actor))\n",
        "version, cause))\n",
        CORE,
    ),
    Bug(
        "chain: a page is believed without its hashes",
        "controlplane/chain.py",
        "        return list(found) == page.hashes",
        "        return len(list(found)) == len(page.hashes)",
        CORE,
    ),
    Bug(
        "lives: a life is usual though some rank has not ended",
        "controlplane/lives.py",
        "    if left or index != len(events) - 2:",
        "    if index != len(events) - 2:",
        CORE,
    ),
    Bug(
        "folding: what was gathered about a job is forgotten when it is removed",
        "controlplane/folding.py",
        "        _tell(state.jobs, event.job, gathered.pop(event.job))",
        "        gathered.pop(event.job)",
        CORE,
    ),
    Bug(
        "replay: the tail behind a snapshot is skipped",
        "controlplane/replay.py",
        "    while position is None or state.position < position:",
        "    while snapshot is None and (position is None or state.position < position):",
        CORE,
    ),
    Bug(
        "asks: a node selector of the pods is not looked at",
        "controlplane/scheduling/fitting.py",
        "if info.labels and not gang.pods_selector.items() <= info.labels.items():",
        "if False:",
        CORE,
    ),
    Bug(
        "cluster: a lost launch is not made up for when it is asked again",
        "adapters/simulated_cluster/cluster.py",
        "                self._reporter.tell_again(seen)\n                self._start_again(seen, job",
        "                self._start_again(seen, job",
        CLUSTER,
    ),
    Bug(
        "plan: what is already going is deleted again",
        "adapters/kubernetes/plan.py",
        "        if not is_terminating(document):\n            self._plan.delete",
        "        if document:\n            self._plan.delete",
        KUBERNETES,
    ),
    Bug(
        "plan: a pod of an older run stands for the new one",
        "adapters/kubernetes/plan.py",
        "        return (mark.attempt, mark.incarnation) == run",
        "        return mark.attempt == run[0]",
        KUBERNETES,
    ),
    Bug(
        "plan: a vanished pod of a running rank is made again behind the core's back",
        "adapters/kubernetes/plan.py",
        "attempt.ranks[rank].state is RankState.PENDING",
        "attempt.ranks[rank].state is not RankState.EXITED",
        KUBERNETES,
    ),
    Bug(
        "plan: the pods of a finished job run on",
        "adapters/kubernetes/wishes.py",
        "CleanPods.NONE: (Wish.LEAVE, Wish.END)",
        "CleanPods.NONE: (Wish.LEAVE, Wish.LEAVE)",
        KUBERNETES,
    ),
    Bug(
        "plan: what belongs to somebody else is taken for ours",
        "adapters/kubernetes/plan.py",
        "return labels_of(document).get(JOB_ID) == self._job.id",
        "return JOB_ID in labels_of(document)",
        KUBERNETES,
    ),
    Bug(
        "sightings: a pod that is being deleted counts as ended",
        "adapters/kubernetes/sightings.py",
        "return Sighting(started=True, leaving=leaving, restarts=restarts)",
        "return Sighting(started=True, exit=leaving, restarts=restarts)",
        KUBERNETES,
    ),
    Bug(
        "sightings: an evicted pod's exit code is blamed on the person",
        "adapters/kubernetes/sightings.py",
        "cause = _platform_cause(status) or CONTAINER_REASONS",
        "cause = CONTAINER_REASONS",
        KUBERNETES,
    ),
    Bug(
        "pods: the person's value hides ours",
        "adapters/kubernetes/pods.py",
        'if each["name"] not in ours), *ours.values()]',
        "if True), *(v for k, v in ours.items() if k not in set_already)]",
        KUBERNETES,
    ),
    Bug(
        "kinds: the native form forgets which roles are expendable",
        "controlplane/kinds/native.py",
        "        expendable=role.expendable,\n",
        "",
        KINDS,
    ),
    Bug(
        "kinds: of two run policies that disagree, one is silently taken",
        "controlplane/kinds/kubeflow.py",
        "        if getattr(policy, name) not in (None, value):",
        "        if getattr(policy, name) not in (None, value) and False:",
        KINDS,
    ),
    Bug(
        "kinds: what was mended hides what else is wrong",
        "controlplane/kinds/structure.py",
        "    return [each for each in found if not any(_shadows(problem, each) for problem in problems)]",
        "    return [] if problems else found",
        KINDS,
    ),
    Bug(
        "kinds: the port of the framework is not looked for in the container",
        "controlplane/kinds/kubeflow.py",
        "    return dict(ports_of(container_of(role))).get(framework.port_name, framework.port)",
        "    return framework.port",
        KINDS,
    ),
    Bug(
        "physics: what one gang does not want is not given to the others",
        "simulator/fluid.py",
        "        rest -= share * most\n        load -= share\n",
        "        rest -= share * most\n",
        PHYSICS,
    ),
    Bug(
        "physics: a gang that ends leaves the others as slow as they were",
        "simulator/fluid.py",
        "        return self._refill(neighbours) if neighbours else []",
        "        return []",
        PHYSICS,
    ),
    Bug(
        "physics: gradients come in the order of the forward pass",
        "simulator/training/pace.py",
        "for layer in reversed(model.layers)",
        "for layer in model.layers",
        PHYSICS,
    ),
    Bug(
        "physics: a prediction peeks at the measured value",
        "simulator/validation/training_points.py",
        "    whole = each if point",
        "    each *= (measured / 3e3) ** 0.1\n    whole = each if point",
        PHYSICS,
    ),
    Bug(
        "physics: a new attempt begins at nothing though there was a checkpoint",
        "simulator/machine_training.py",
        "self.saved[resume] = progress.kept / progress.steps",
        "self.saved[resume] = 0.0",
        PHYSICS,
    ),
    Bug(
        "physics: a timer that was overtaken still rings",
        "simulator/machine_training.py",
        "if crew.timer != number:",
        "if number < 0:",
        PHYSICS,
    ),
    Bug(
        "physics: a gang that is stopped on notice writes no checkpoint",
        "simulator/machine.py",
        "noticed_s=self._notice_s(run)",
        "noticed_s=0.0",
        PHYSICS,
    ),
    Bug(
        "physics: a node that will be taken still asks for work",
        "simulator/machine.py",
        "node.up and node.warned_until is None",
        "node.up",
        PHYSICS,
    ),
    Bug(
        "physics: a gang that grows has as many steps before it as ever",
        "simulator/trainer.py",
        "scale = gang.pace.samples / how.samples",
        "scale = 1.0",
        PHYSICS,
    ),
    Bug(
        "physics: the burst of all clients fits every port",
        "simulator/training/served_exchange.py",
        "tail_s=incast_s(place, clients),",
        "tail_s=0.0,",
        PHYSICS,
    ),
    Bug(
        "physics: a node's stream of faults hangs on the other nodes",
        "simulator/faults/chance.py",
        'random.Random(f"{seed}/{node}/fault")',
        'random.Random(f"{seed}/{hash(node)}/fault")',
        PHYSICS,
    ),
    Bug(
        "scheduling: two GPUs more than the quota",
        "controlplane/scheduling/quota_gate.py",
        "if gang.milli > left:",
        "if gang.milli > left + 2_000:",
        SCHEDULING,
    ),
    Bug(
        "scheduling: nobody is spared whose eviction is not needed",
        "controlplane/scheduling/victims.py",
        "for victim in reversed(chosen.copy()):",
        "for victim in chosen[:0]:",
        SCHEDULING,
    ),
    Bug(
        "scheduling: a victim goes to the end of the line",
        "controlplane/settling.py",
        "keeps_place=_keeps_place(job)",
        "keeps_place=False",
        SCHEDULING,
    ),
    Bug(
        "scheduling: what starts in a pass is promised to another",
        "controlplane/scheduling/snapshot.py",
        "            self.hold(self._coming, fit)\n        if gang.topology",
        "            pass\n        if gang.topology",
        SCHEDULING,
    ),
    Bug(
        "scheduling: back-fill does not look at the planned start",
        "controlplane/scheduling/backfill.py",
        "        if count == 0:\n            return self._snapshot.free\n",
        "        if count >= 0:\n            return self._snapshot.free\n",
        ("tests/controlplane/test_backfill.py",),
    ),
    Bug(
        "scheduling: whoever was evicted gets no second chance",
        "controlplane/scheduling/protection.py",
        "_GROWTH = 2.0",
        "_GROWTH = 0.0",
        ("tests/controlplane/test_protection.py",),
    ),
    Bug(
        "scheduling: planned starts do not wait for quota",
        "controlplane/scheduling/quota_ahead.py",
        "        return self._allows[bisect_right(self.times, at) - 1]",
        "        return True",
        ("tests/controlplane/test_quota_ahead.py",),
    ),
    Bug(
        "scheduling: a start over an instant without room is planned",
        "controlplane/scheduling/whole_timeline.py",
        "            left = free & bits_at[at]\n            if left != free:",
        "            left = free & bits_at[at] if at == index else free\n            if left != free:",
        ("tests/controlplane/test_quota_ahead.py",),
    ),
    Bug(
        "scheduling: cores that others have planned are given away",
        "controlplane/scheduling/timeline.py",
        "    if held.fit.shares or held.fit.amounts:",
        "    if held.fit.shares:",
        ("tests/controlplane/test_requests.py",),
    ),
    Bug(
        "scheduling: what starts in a pass holds its cores only from the next one on",
        "controlplane/scheduling/taking.py",
        "                free.hold_amounts(ordinal, fit.amounts[index])",
        "                pass",
        ("tests/controlplane/test_requests.py",),
    ),
    Bug(
        "tenancy: a job that was scaled holds what its old spec said",
        "controlplane/world.py",
        "            self._follow_requests(before, after)",
        "            pass",
        ("tests/controlplane/test_requests.py",),
    ),
    Bug(
        "scheduling: who borrows other resources is not asked for them",
        "controlplane/scheduling/quotas.py",
        "        return found or [self.gpus]",
        "        return [self.gpus]",
        ("tests/controlplane/test_several_resources.py",),
    ),
    Bug(
        "redaction: what pods request goes with their templates",
        "controlplane/redaction.py",
        "            template=template,",
        "            template={},",
        REDACTION,
    ),
    Bug(
        "redaction: what a program said is left in the ledger",
        "controlplane/redaction.py",
        "        for said in self._said.get(job, ()):",
        "        for said in ():",
        REDACTION,
    ),
    Bug(
        "scheduling: a view made after the pass has the pass in it twice",
        "controlplane/scheduling/cycle.py",
        "            snapshot.outlive_the_world()",
        "            pass",
        CORE,
    ),
    Bug(
        "scheduling: the second gang of a pass is given what the first one has",
        "controlplane/scheduling/snapshot.py",
        "            for fit in self._taken:",
        "            for fit in ():",
        CORE,
    ),
)
