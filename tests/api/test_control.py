"""Commands and questions through Control: answered, refused, or honestly unknown."""

import asyncio
from collections.abc import Sequence

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.memory_log import MemoryLog
from api.engine.engine_client import EngineClient, Unavailable
from controlplane.engine import Engine
from controlplane.model.commands import CordonNode, DefineQueue
from controlplane.model.errors import LogUnavailable, Rejected
from controlplane.model.events import Recorded
from controlplane.model.policy import Queue
from controlplane.state.world import World
from tests.api.stand_in import ObedientCluster


class SlowLog(MemoryLog):
    """Appends when the gate is open; may fail instead."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        await self.gate.wait()
        if self.fails:
            raise LogUnavailable("the disk is gone")
        await super().append(batch, epoch=epoch)


class Led:
    def __init__(self, **options: float) -> None:
        self.log = SlowLog()
        self.engine_client = EngineClient(self.log, **options)  # type: ignore[arg-type]
        self.engine = Engine(
            AsyncioClock(start=0.0),
            self.log,
            ObedientCluster(),
            on_recorded=self.engine_client.recorded,
        )
        self.engine_client.engine = self.engine
        self.task = asyncio.create_task(self.engine.run())

    async def up(self) -> "Led":
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.engine_client.leads
        return self

    async def down(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def queue(name: str, id: str = "") -> DefineQueue:
    return DefineQueue(id=id, queue=Queue(name, 4))


async def test_a_command_is_answered_with_its_receipt() -> None:
    led = await Led().up()
    receipt = await led.engine_client.submit(queue("a", "first"))
    assert receipt.stream == "queue/a"
    assert await led.engine_client.submit(queue("a", "first")) == receipt
    await led.down()


async def test_a_refusal_is_raised() -> None:
    led = await Led().up()
    with pytest.raises(Rejected, match="no node"):
        await led.engine_client.submit(CordonNode(node="nowhere"))
    await led.down()


async def test_nothing_is_asked_of_an_engine_that_does_not_lead() -> None:
    engine_client = EngineClient(MemoryLog())
    with pytest.raises(Unavailable):
        await engine_client.submit(queue("a"))
    with pytest.raises(Unavailable):
        await engine_client.ask(lambda world: world.position)


async def test_an_engine_that_stops_leaves_the_outcome_unknown() -> None:
    led = await Led().up()
    led.log.gate.clear()
    led.log.fails = True
    asked = asyncio.create_task(led.engine_client.submit(queue("a")))
    await asyncio.sleep(0.01)
    question = asyncio.create_task(led.engine_client.ask(lambda world: world.position))
    await asyncio.sleep(0)
    led.log.gate.set()
    with pytest.raises(Unavailable, match="may or may not"):
        await asked
    with pytest.raises(Unavailable):
        await question
    with pytest.raises(LogUnavailable):
        await led.task
    assert led.engine_client.commands_in_flight == 0


async def test_a_log_that_hangs_is_not_waited_for_without_end() -> None:
    led = await Led(answer_s_max=0.02).up()
    led.log.gate.clear()
    with pytest.raises(Unavailable, match="may or may not"):
        await led.engine_client.submit(queue("a"))
    led.log.gate.set()
    await led.down()


async def test_too_many_commands_in_flight_are_refused() -> None:
    led = await Led(commands_max=2).up()
    led.log.gate.clear()
    waiting = [asyncio.create_task(led.engine_client.submit(queue(name))) for name in ("a", "b")]
    await asyncio.sleep(0.01)
    with pytest.raises(Rejected) as refused:
        await led.engine_client.submit(queue("c"))
    assert refused.value.code == "busy"
    led.log.gate.set()
    await asyncio.gather(*waiting)
    await led.down()


async def test_a_question_in_mid_step_waits_until_its_events_are_in_the_log() -> None:
    led = await Led().up()
    led.log.gate.clear()
    submitted = asyncio.create_task(led.engine_client.submit(queue("a")))
    await asyncio.sleep(0.01)
    assert "a" in led.engine.world.queues, "the world runs ahead inside a step"
    asked = asyncio.create_task(led.engine_client.ask(lambda world: "a" in world.queues))
    await asyncio.sleep(0.01)
    assert not asked.done()
    led.log.gate.set()
    assert await asked
    await submitted
    await led.down()


async def test_a_question_to_an_idle_engine_is_answered_on_the_spot() -> None:
    led = await Led().up()
    coroutine = led.engine_client.ask(lambda world: world.position)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    await led.down()


async def test_a_failing_question_fails_only_its_caller() -> None:
    led = await Led().up()

    def fails(world: World) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await led.engine_client.ask(fails)
    with pytest.raises(ZeroDivisionError):
        await led.engine_client.submit_then(queue("a"), lambda world, receipt: fails(world))
    assert (await led.engine_client.submit(queue("b"))).stream == "queue/b"
    await led.down()


async def test_listeners_hear_what_is_in_the_log_and_see_the_world_after_it() -> None:
    led = await Led().up()
    heard: list[tuple[int, int]] = []
    led.engine_client.listen(
        lambda batch, world: heard.append((batch[-1].position, world.position))
    )
    receipt = await led.engine_client.submit(queue("a"))
    assert heard == [(receipt.position, receipt.position)]
    await led.down()
