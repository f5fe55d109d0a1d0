"""Forks, studies and incidents, as a person meets them in a real browser."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from adapters.logs.held_log import HeldLog
from api.app import make_app
from api.cluster.about import AboutCluster
from api.engine.engine_client import EngineClient
from api.server import Runner
from controlplane.log.replay import rebuild
from tests.api.stand_in import ObedientCluster, Server, native, serving

pytest.importorskip("playwright", reason="make venv installs Playwright")

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from tests.api.browser import CHROMIUM, Tab, open_tab, running_browser

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="needs a browser: apt-get install chromium, or deploy/install-system-packages.sh",
    ),
    pytest.mark.asyncio(loop_scope="module"),
]

TRACE = "id,submit,gpus,duration\n" + "".join(f"{i},{i * 60},4,600\n" for i in range(20))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, server: Server) -> AsyncIterator[Tab]:
    """A tab that must neither show an error in its console nor ask another server."""
    async with open_tab(browser, server.url) as tab:
        yield tab
        assert tab.errors == []
        assert tab.outside == []


async def some_past(server: Server) -> None:
    """Three jobs run and wait; the first then fails, and so the next one starts."""
    for name in ("one", "two", "three"):
        status, job = await server.call("POST", "/v1/jobs", native(name, replicas=1, gpus=8))
        assert status == 201, job
        if name == "one":
            first = job["job"]["id"]
    await server.settled()
    server.cluster.finish(first, code=3)
    await server.settled()


async def accessible(tab: Tab) -> None:
    checked = await Axe().run(tab.page)
    assert checked.violations_count == 0, checked.generate_report()


async def test_a_fork_from_the_keyboard_shows_both_futures(server: Server, tab: Tab) -> None:
    await some_past(server)
    await tab.go("#/jobs")
    await tab.page.wait_for_selector("#time:not([hidden])")
    await tab.page.keyboard.press("f")
    await tab.page.wait_for_selector(".fork-form fieldset input")
    assert (await tab.run("location.hash")).startswith("#/forks")
    await tab.until("document.querySelector('.fork-form input').value.includes('T')")
    await tab.page.select_option("select[aria-label='Kind of change']", "cordon")
    await tab.page.click("text=Add this change")
    await tab.page.fill("fieldset[data-change=cordon] input", "no-such-node")
    await tab.page.click("text=Run the fork")
    # A refusal is shown in the form, and what was entered stays.
    await tab.until("document.querySelector('.problem').textContent.includes('no-such-node')")
    await tab.page.fill("fieldset[data-change=cordon] input", "node-1")
    await tab.page.click("text=Run the fork")
    await tab.until(
        "document.querySelectorAll('.futures:not([hidden]) figure svg path').length > 3"
    )
    assert await tab.page.inner_text("h1") == "2 more nodes; node node-1 takes no new work"
    assert await tab.page.locator(".futures:not([hidden]) figure").count() == 3
    shown = await tab.page.inner_text("main")
    assert "control run" in shown
    await tab.page.click("role=tab[name='Jobs']")
    await tab.page.keyboard.press("ArrowLeft")
    await tab.until(
        "document.querySelector('[role=tab][aria-selected=true]').textContent === 'Waiting demand'"
    )
    await accessible(tab)
    await tab.page.click("text=All forks")
    await tab.until("document.querySelector('table[aria-label=Forks] a')")
    assert (await tab.rows("Forks"))[0][2] == "done"
    tab.errors = [error for error in tab.errors if "422" not in error]


async def test_a_fork_begins_at_the_instant_that_is_looked_at(server: Server, tab: Tab) -> None:
    await some_past(server)
    await tab.go("#/queues?at=2023-11-14T22:13:25.000Z")
    await tab.page.click("#time .fork")
    await tab.until(
        "document.querySelector('.fork-form input')?.value === '2023-11-14T22:13:25.000Z'"
    )
    await tab.go("#/forks?cordon=node-0")
    assert await tab.page.input_value("fieldset[data-change=cordon] input") == "node-0"


async def test_a_study_of_a_trace_is_asked_followed_and_compared(server: Server, tab: Tab) -> None:
    await tab.go("#/")
    await tab.page.fill("input[aria-label='Nodes more']", "3")
    await tab.page.click(".ask-more button")
    await tab.page.wait_for_selector(".study-form input[type=checkbox]")
    assert await tab.run("[...document.querySelectorAll('input')].some(i => i.value === '0, 3')")
    await tab.page.select_option("select[name=workload]", "trace")
    file = {"name": "jobs.csv", "mimeType": "text/csv", "buffer": TRACE.encode()}
    for policy in ("fifo", "easy"):
        await tab.page.set_input_files("input[type=file]", files=[file])  # type: ignore[list-item]
        for name in ("fifo", "easy"):
            await tab.page.set_checked(f".checks input[value={name}]", name == policy)
        await tab.page.click("text=Run the study")
        await tab.until(
            "document.querySelectorAll('table[aria-label=Measures] tbody tr').length > 3"
        )
        assert "this cluster + " in await tab.page.inner_text("h1")
        assert await tab.page.locator(".sentences li").count() > 0
        await tab.page.click("text=All studies")
        await tab.page.wait_for_selector(".study-form input[type=checkbox]")
        await tab.page.select_option("select[name=workload]", "trace")
    await accessible(tab)
    for box in await tab.page.locator("table[aria-label=Studies] input").all():
        await box.check()
    await tab.page.click("text=Compare the two")
    await tab.until("document.querySelectorAll('th[scope=colgroup]').length === 2")
    await accessible(tab)


async def test_an_incident_is_analysed_annotated_and_shared(server: Server, tab: Tab) -> None:
    await some_past(server)
    await tab.go("#/incidents")
    await tab.until("document.querySelector('.sentences').textContent.includes('failed')")
    # A step looks at the state after that event, and an annotation is about what is looked at.
    await tab.page.click(".steps li:last-child button")
    await tab.until("location.hash.includes('event=')")
    await tab.until("document.querySelector('.note-form').textContent.includes('2023-11-14')")
    evil = "<img src=x onerror=alert(1)> broken cable"
    await tab.page.fill("textarea", evil)
    await tab.page.click("text=Annotate")
    await tab.until("document.querySelector('.notes .text')")
    assert await tab.page.inner_text(".notes .text") == evil
    await accessible(tab)
    async with tab.page.expect_download() as download:
        await tab.page.click("text=Share as a file")
    text = (await (await download.value).path()).read_text()
    assert "&lt;img src=x" in text
    assert "<img" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text
    await tab.page.click(".notes button:text-is('Remove')")
    await tab.until("!document.querySelector('.notes .text')")


async def test_a_log_that_is_only_shown_offers_no_action(browser: Browser, server: Server) -> None:
    await some_past(server)
    log = await HeldLog.of(server.log)
    engine_client = EngineClient(log)
    world = (await rebuild(log)).world
    about = AboutCluster(kind="recorded", read_only=True)
    app = make_app(engine_client, ObedientCluster(), now=lambda: world.at, about=about)
    engine_client.show(world)
    runner = Runner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/v1/jobs/default/two/cancel") as refused:
                assert (refused.status, (await refused.json())["code"]) == (403, "read_only")
            async with session.get(f"{url}/readyz") as ready:
                assert (await ready.json())["role"] == "reader"
        async with open_tab(browser, url) as tab:
            await tab.go("#/jobs/default/two")
            await tab.until("document.querySelector('#cluster').textContent.includes('read-only')")
            await tab.until(
                "document.querySelector('#connection').textContent.includes('read-only')"
            )
            await tab.until("document.querySelectorAll('.heading button').length === 0")
            await tab.page.keyboard.press("[")
            await tab.until("location.hash.includes('event=')")
            assert tab.errors == []
    finally:
        await runner.cleanup()
