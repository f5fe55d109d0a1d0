"""The dashboard, as a person meets it in a real browser.

One browser serves all tests of this file; every test has its own server and its own profile.
"""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.memory_log import MemoryLog
from api.access import Access, Token, token_hash
from tests.api.stand_in import START, Server, native, serving

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

PAGES = (
    "#/", "#/jobs", "#/jobs/default/one", "#/queues", "#/queues/default", "#/nodes", "#/nodes/node-0",
    "#/timeline", "#/forks", "#/studies", "#/incidents", "#/settings", "#/no/such/page",
)  # fmt: skip


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


async def submit(server: Server, *names: str, gpus: int = 8) -> None:
    for name in names:
        status, answer = await server.call("POST", "/v1/jobs", native(name, gpus=gpus))
        assert status == 201, answer
    await server.settled()


async def test_what_happens_is_shown_as_it_happens(server: Server, tab: Tab) -> None:
    await tab.go("#/jobs")
    await tab.until("document.body.innerText.includes('No jobs yet')")
    await submit(server, "one", "two", "three")
    await tab.until("document.querySelectorAll('table[aria-label=Jobs] tbody tr').length === 3")
    assert [row[:2] for row in await tab.rows()] == [
        ["two", "Running"],
        ["one", "Running"],
        ["three", "Queued"],
    ]
    await tab.go("#/")
    await tab.until("document.querySelector('.tile b').textContent === '16 / 16'")


async def test_a_job_is_reached_and_cancelled_with_the_keyboard_alone(
    server: Server, tab: Tab
) -> None:
    await submit(server, "one")
    await tab.go()
    await tab.page.keyboard.press("g")
    await tab.page.keyboard.press("j")
    await tab.page.wait_for_selector("table[aria-label=Jobs] tbody tr")
    await _tab_to(tab, "one")
    await tab.page.keyboard.press("Enter")
    await tab.page.wait_for_selector(".why")
    assert await tab.run("location.hash") == "#/jobs/default/one"
    await _tab_to(tab, "Cancel")
    await tab.page.keyboard.press("Enter")
    # The dialog says what would happen, and its button has the focus.
    await tab.until("document.querySelector('.ahead').innerText.includes('default/one')")
    await tab.page.keyboard.press("Enter")
    await tab.until("document.querySelector('.heading .badge').textContent === 'Cancelled'")


async def _tab_to(tab: Tab, text: str) -> None:
    for _ in range(60):
        await tab.page.keyboard.press("Tab")
        if await tab.run("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"{text!r} cannot be reached with the tab key")


async def test_a_question_that_is_answered_with_escape_changes_nothing(
    server: Server, tab: Tab
) -> None:
    await submit(server, "one")
    await tab.go("#/jobs/default/one")
    await tab.page.click("button:text-is('Delete')")
    await tab.page.keyboard.press("Escape")
    await tab.until("!document.querySelector('dialog')")
    _, detail = await server.call("GET", "/v1/jobs/default/one")
    assert detail["job"]["phase"] == "Running"


async def test_focus_stays_where_it_is_while_rows_are_drawn_again(server: Server, tab: Tab) -> None:
    await submit(server, "one", "two")
    await tab.go("#/jobs")
    await tab.page.focus("table[aria-label=Jobs] a:text-is('one')")
    await server.call("POST", "/v1/jobs/default/one/suspend")
    await tab.until("document.querySelector('main').innerText.includes('Suspended')")
    assert await tab.run("document.activeElement.textContent") == "one"


async def test_the_past_is_seen_as_it_was_and_nothing_is_offered_there(
    server: Server, tab: Tab
) -> None:
    await submit(server, "one")
    _, then = await server.call("GET", "/v1/events?limit=1000")
    await submit(server, "two")
    await tab.go(f"#/jobs?event={then['head']}")
    assert [row[:2] for row in await tab.rows()] == [["one", "Running"]]
    await tab.page.click("table[aria-label=Jobs] a")
    await tab.page.wait_for_selector(".why")
    assert f"event={then['head']}" in await tab.run("location.hash")
    assert await tab.page.locator(".heading button").count() == 0
    await tab.page.click("#time .now")
    await tab.page.wait_for_selector(".heading button")


async def test_the_log_is_stepped_through_event_by_event_and_in_time(
    server: Server, tab: Tab
) -> None:
    await submit(server, "one", "two", "three")
    _, events = await server.call("GET", "/v1/events?limit=1000")
    await tab.go("#/jobs")
    await tab.page.wait_for_selector("#time:not([hidden])")
    for _ in range(3):
        await tab.page.keyboard.press("[")
        await tab.page.wait_for_timeout(30)
    await tab.until(f"location.hash.includes('event={events['head'] - 3}')")
    first = events["items"][0]["at"]
    await tab.go(f"#/jobs?at={first}")
    await tab.until("document.querySelector('.when').textContent.includes('UTC')")
    # A press on the axis looks at that instant, End at the present.
    await tab.page.click(".axis", position={"x": 300, "y": 30})
    await tab.until("location.hash.includes('at=20')")
    await tab.page.focus(".axis")
    await tab.page.keyboard.press("End")
    await tab.until("!location.hash.includes('at=')")
    assert len(await tab.rows()) == 3


async def test_everything_on_the_overview_follows_the_instant(server: Server, tab: Tab) -> None:
    await submit(server, "one")
    head = (await server.log.head()).position
    await submit(server, "two", "three")
    await tab.go("#/")
    await tab.until("document.querySelector('.tile b').textContent === '16 / 16'")
    await tab.run(f"location.hash = '#/?event={head}'")
    await tab.until("document.querySelector('.tile b').textContent === '8 / 16'")
    assert await tab.page.locator(".chart .cursor").count() == 2
    assert "No job waits" in await tab.page.inner_text("main")
    # The other pages show the same instant.
    await tab.page.click("#nav span:text-is('Jobs')")
    await tab.until("document.querySelectorAll('table[aria-label=Jobs] tbody tr').length === 1")
    assert await tab.page.locator("table[aria-label=Jobs] tbody input").count() == 0


async def test_the_log_is_played_and_a_span_of_it_is_kept_in_the_address(browser: Browser) -> None:
    clock = AsyncioClock(start=START)
    async with serving(now=clock.now) as server, open_tab(browser, server.url) as tab:
        await submit(server, "one")
        await tab.go("#/queues")
        await tab.page.wait_for_selector("#time:not([hidden])")
        await asyncio.sleep(6)
        await tab.page.keyboard.press("+")
        await tab.until("location.hash.includes('from=') && location.hash.includes('to=')")
        await tab.page.click("#nav span:text-is('Nodes')")
        assert "from=" in await tab.run("location.hash")
        await tab.page.keyboard.press("a")
        await tab.until("!location.hash.includes('from=')")
        await tab.page.select_option("#time select", "10")
        await tab.page.keyboard.press("p")
        await tab.page.wait_for_selector("#time.past")
        # It plays up to the present, and then shows the present.
        await tab.until("document.querySelector('.when').textContent.startsWith('now')")


async def test_where_a_token_is_needed_it_is_asked_for(browser: Browser) -> None:
    access = Access([Token("ann", token_hash("secret"))], bound_to="0.0.0.0")
    async with serving(access=access) as server, open_tab(browser, server.url) as tab:
        await tab.page.goto(server.url)
        for token in ("wrong", "secret"):
            await tab.page.fill("#token", token)
            await tab.page.press("#token", "Enter")
        await tab.until("document.querySelector('#connection').dataset.status === 'live'")
        await tab.until("document.body.innerText.includes('No jobs yet')")
        assert await tab.page.locator("dialog").count() == 0


@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("#/no/such/page", "There is no such page"),
        ("#/jobs/default/<img src=x onerror=alert(1)>", "<img src=x"),
        ("#/jobs/default/..", "nothing at this address"),
        ("#/jobs/default/one/", "why"),
        ("#/nodes/none", "none"),
        ("#/queues/none", "There is no queue none"),
    ],
)
async def test_a_wrong_address_says_so_and_offers_nothing(
    browser: Browser, server: Server, fragment: str, text: str
) -> None:
    await submit(server, "one")
    async with open_tab(browser, server.url) as tab:
        await tab.go("#/jobs/default/one")
        await tab.run(f"location.hash = {quote(fragment, safe='#/')!r}")
        if text == "why":
            await tab.page.wait_for_selector(".why")
            return
        await tab.page.wait_for_selector(".missing")
        assert text in await tab.page.inner_text("main")
        assert await tab.page.locator("main button, main img").count() == 0


async def test_a_server_that_is_gone_is_never_called_live(browser: Browser) -> None:
    log = MemoryLog()
    async with serving(log=log) as server:
        port = int(server.url.rpartition(":")[2])
        tabs = open_tab(browser, server.url)
        tab = await tabs.__aenter__()
        await submit(server, "one")
        await tab.go("#/jobs")
        await tab.until("document.querySelector('#connection').dataset.status === 'live'")
    try:
        await tab.until("document.querySelector('#connection').dataset.status === 'reconnecting'")
        await tab.until("document.body.hasAttribute('data-stale')")
        # What was shown stays, greyed, and a page that was not loaded yet does not come.
        assert len(await tab.rows()) == 1
        await tab.page.click("#nav span:text-is('Queues')")
        await tab.until("!document.querySelector('#notice').hidden")
        async with serving(log=log, port=port):
            await tab.until("document.querySelector('#connection').dataset.status === 'live'")
            await tab.page.wait_for_selector("table[aria-label=Queues]")
            await tab.until("!document.body.hasAttribute('data-stale')")
            assert await tab.run("document.querySelector('#notice').hidden")
    finally:
        await tabs.__aexit__(None, None, None)


async def test_search_finds_jobs_nodes_and_queues_by_any_substring(
    server: Server, tab: Tab
) -> None:
    await submit(server, "bert-large")
    await tab.go()
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("t-lar")
    await tab.page.wait_for_selector("#matches li[aria-selected=true]")
    assert "default/bert-large" in await tab.page.inner_text("#matches")
    await tab.page.keyboard.press("Enter")
    await tab.until("location.hash === '#/jobs/default/bert-large'")
    for text, kind in (("ode-1", "node"), ("efaul", "queue")):
        await tab.page.keyboard.press("/")
        await tab.page.keyboard.type(text)
        await tab.until(f"document.querySelector('#matches').innerText.includes('{kind}')")
        await tab.page.keyboard.press("Escape")


async def test_shortcuts_are_listed_and_colours_are_kept(server: Server, tab: Tab) -> None:
    await tab.go()
    await tab.page.keyboard.press("?")
    await tab.until("document.querySelector('dialog').innerText.includes('Time machine')")
    await tab.page.keyboard.press("Escape")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = await tab.run(ground)
    await tab.page.keyboard.press("D")
    await tab.page.keyboard.press("D")
    assert await tab.run("document.documentElement.dataset.theme") == "dark"
    assert await tab.run(ground) != light
    await tab.page.reload()
    assert await tab.run("document.documentElement.dataset.theme") == "dark"


async def test_filters_and_order_are_in_the_address(server: Server, tab: Tab) -> None:
    await submit(server, "small", gpus=1)
    await submit(server, "large", gpus=8)
    await tab.go("#/jobs?sort=gpus")
    assert [row[0] for row in await tab.rows()] == ["small", "large"]
    await tab.page.click("th button:text-is('GPUs')")
    await tab.until("location.hash.includes('sort=-gpus')")
    first = "document.querySelector('table[aria-label=Jobs] tbody tr').innerText"
    await tab.until(f"{first}.includes('large')")
    assert [row[0] for row in await tab.rows()] == ["large", "small"]
    await tab.page.fill("main input[type=search]", "mal")
    await tab.until("location.hash.includes('q=mal')")
    await tab.until("document.querySelectorAll('table[aria-label=Jobs] tbody tr').length === 1")


async def test_the_story_of_a_job_is_in_sentences_and_leads_into_the_past(
    server: Server, tab: Tab
) -> None:
    await submit(server, "one")
    await tab.go("#/jobs/default/one")
    story = await tab.page.inner_text(".story")
    assert "submitted to queue default: 1 rank, 8 GPUs" in story
    assert "attempt 1 runs: all ranks have started" in story
    await tab.page.click(".story li:first-child button")
    await tab.until("document.querySelector('.heading .badge').textContent === 'Queued'")
    assert await tab.page.locator(".story li").count() == 1


async def test_several_jobs_are_changed_at_once(server: Server, tab: Tab) -> None:
    await submit(server, "one", "two", "three")
    await tab.go("#/jobs")
    for name in ("one", "three"):
        await tab.page.check(f'input[aria-label="Choose default/{name}"]')
    await tab.page.click(".bulk button:text-is('Suspend')")
    await tab.page.click("dialog button:text-is('Suspend')")
    await tab.until("document.querySelector('.bulk-box').innerText.includes('2 done')")
    await tab.until("document.querySelectorAll('.badge.Suspended').length === 2")
    phases = {row[0]: row[1] for row in await tab.rows()}
    assert phases == {"one": "Suspended", "two": "Running", "three": "Suspended"}


async def test_a_drain_shows_first_whom_it_moves(server: Server, tab: Tab) -> None:
    await submit(server, "one", gpus=4)
    await tab.go("#/jobs/default/one")
    node = await tab.page.inner_text("table[aria-label=Ranks] td:nth-child(3)")
    await tab.go(f"#/nodes/{node}")
    await tab.page.click("button:text-is('Drain')")
    await tab.until("document.querySelector('.ahead').innerText.includes('default/one')")
    await tab.page.keyboard.press("Escape")
    _, before = await server.call("GET", f"/v1/nodes/{node}")
    assert not before["cordoned"]
    await tab.page.click("button:text-is('Cordon')")
    await tab.page.click("dialog button:text-is('Cordon')")
    await tab.until("document.querySelector('.heading .badge').textContent === 'cordoned'")


async def test_a_queue_is_made_and_changed_with_a_preview(server: Server, tab: Tab) -> None:
    await submit(server, "one", "two", "three")
    await tab.go("#/queues")
    await tab.page.click("button:text-is('New queue')")
    await tab.until("document.querySelector('.refused').textContent.includes('name')")
    assert await tab.page.is_disabled("dialog button:text-is('Make it')")
    await tab.page.fill("dialog label:has-text('Name') input", "research")
    await tab.page.fill("dialog label:has-text('Ceiling') input", "8")
    await tab.until("document.querySelector('.ahead .effects')")
    await tab.page.click("dialog button:text-is('Make it')")
    await tab.until(
        "document.querySelector('table[aria-label=Queues]').innerText.includes('research')"
    )
    _, queue = await server.call("GET", "/v1/queues/research")
    assert queue["gpus_max"] == 8


@pytest.mark.parametrize("lanes", ["nodes", "jobs"])
async def test_the_timeline_draws_the_bars_of_jobs(server: Server, tab: Tab, lanes: str) -> None:
    await submit(server, "one", "two", "three")
    await tab.go(f"#/timeline?lanes={lanes}")
    await tab.until("document.querySelector('.heading').innerText.includes('2 bars')")
    # Some pixels have the colour of the queue that the legend shows.
    await tab.until(COLOURED)


COLOURED = """(() => {
  const canvas = document.querySelector('.gantt'), swatch = document.querySelector('.legend i');
  if (!swatch || !canvas.width) return false;
  const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  probe.fillStyle = getComputedStyle(swatch).backgroundColor;
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext('2d', {willReadFrequently: true});
  context.drawImage(canvas, 0, 0);
  const {data} = context.getImageData(0, 0, copy.width, copy.height);
  for (let i = 0; i < data.length; i += 4)
    if (Math.abs(data[i] - r) + Math.abs(data[i+1] - g) + Math.abs(data[i+2] - b) < 6) return true;
  return false;
})()"""


@pytest.mark.parametrize("width", [360, 2560])
async def test_no_page_is_wider_than_the_screen(
    browser: Browser, server: Server, width: int
) -> None:
    await submit(server, "one", "two", "a-very-long-name-that-goes-on-and-on-and-on-and-on")
    async with open_tab(browser, server.url, width=width) as tab:
        for fragment in PAGES:
            await tab.go(fragment)
            wide = await tab.run("document.documentElement.scrollWidth")
            assert wide <= width, f"{fragment} is {wide} px wide"


@pytest.mark.slow
@pytest.mark.parametrize("fragment", PAGES)
async def test_every_page_is_accessible_in_both_themes(
    browser: Browser, server: Server, fragment: str
) -> None:
    await submit(server, "one", "two", "three")
    async with open_tab(browser, server.url) as tab:
        await tab.go(fragment)
        for scheme in ("light", "dark"):
            await tab.run(f"document.documentElement.dataset.theme = '{scheme}'")
            checked = await Axe().run(tab.page)
            assert checked.violations_count == 0, checked.generate_report()
