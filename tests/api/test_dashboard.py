"""The dashboard, as a person meets it in a real browser."""

import pytest

from api.access import Access, Token, token_hash
from tests.api.browser import CHROMIUM, Page, browsing
from tests.api.stand_in import Server, native, serving

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs a browser: apt-get install chromium, or deploy/install-system-packages.sh",
)

ROWS = "[...document.querySelectorAll('table.jobs tbody tr')].map(row => row.innerText)"


async def rows(page: Page) -> list[str]:
    return [" ".join(str(row).split()) for row in await page.run(ROWS)]


async def test_what_happens_is_shown_as_it_happens() -> None:
    async with serving() as server, browsing() as page:
        await page.open(server.url)
        await page.until("document.body.innerText.includes('No jobs yet')")
        for name in ("one", "two", "three"):
            await server.call("POST", "/v1/jobs", native(name, gpus=8))
        await page.until(f"{ROWS}.length === 3")
        shown = await rows(page)
        assert [row.split()[:2] for row in shown] == [
            ["two", "Running"],
            ["one", "Running"],
            ["three", "Queued"],
        ]
        await page.until("document.querySelector('.tile b').textContent === '16 / 16'")
        assert page.errors == []


async def test_a_job_is_reached_and_stopped_with_the_keyboard_alone() -> None:
    async with serving() as server, browsing() as page:
        await server.call("POST", "/v1/jobs", native("one", gpus=8))
        await page.open(server.url)
        await page.until(f"{ROWS}.length === 1")
        for _ in range(20):
            await page.press("Tab")
            if await page.run("document.activeElement.textContent") == "one":
                break
        await page.press("Enter")
        await page.until("document.querySelector('.why')")
        assert await page.run("location.hash") == "#/job/default/one"
        for _ in range(20):
            await page.press("Tab")
            if await page.run("document.activeElement.textContent") == "Cancel":
                break
        # The question whether one is sure is answered with yes.
        await page.press("Enter")
        await page.until("document.querySelector('h2 .phase').textContent === 'Cancelled'")
        assert page.errors == []


async def test_focus_stays_where_it_is_while_rows_are_drawn_again() -> None:
    async with serving() as server, browsing() as page:
        for name in ("one", "two"):
            await server.call("POST", "/v1/jobs", native(name, gpus=8))
        await page.open(server.url)
        await page.until(f"{ROWS}.length === 2")
        await page.run("document.querySelectorAll('table.jobs a')[1].focus()")
        await server.call("POST", "/v1/jobs/default/one/suspend")
        await page.until(f"{ROWS}.some(row => row.includes('Suspended'))")
        assert await page.run("document.activeElement.textContent") == "one"


async def test_the_past_is_seen_as_it_was_and_nothing_is_offered_there() -> None:
    async with serving() as server, browsing() as page:
        await server.call("POST", "/v1/jobs", native("one", gpus=8))
        await server.settled()
        _, then = await server.call("GET", "/v1/events")
        await server.call("POST", "/v1/jobs", native("two", gpus=8))
        await page.open(f"{server.url}/#/")
        await page.until(f"{ROWS}.length === 2")
        # The slider is shown once the page knows how many events there are.
        await page.until("!document.getElementById('time').hidden")
        await page.run(
            f"position.value = {then['head']}; position.dispatchEvent(new Event('change'))"
        )
        await page.until(f"{ROWS}.length === 1")
        assert (await rows(page))[0].startswith("one Running")
        assert await page.run("state.textContent.startsWith('the past')")
        await page.run("document.querySelector('table.jobs a').click()")
        await page.until("document.querySelector('.why')")
        assert not await page.run("document.querySelector('main button')")
        await page.run("document.getElementById('now').click()")
        await page.until("document.querySelector('main button')")
        assert page.errors == []


async def test_where_a_token_is_needed_it_is_asked_for() -> None:
    access = Access([Token("ann", token_hash("secret"))], bound_to="0.0.0.0")
    async with serving(access=access) as server, browsing() as page:
        await page.open(server.url)
        await page.until("document.getElementById('ask-token').open")
        await page.run("token.value = 'wrong'; document.querySelector('dialog button').click()")
        await page.until("document.getElementById('ask-token').open && !token.value")
        await page.run("token.value = 'secret'; document.querySelector('dialog button').click()")
        await page.until("document.body.innerText.includes('No jobs yet')")
        await page.until("state.className === 'live'")
        assert not await page.run("document.getElementById('ask-token').open")


async def test_what_people_write_is_never_markup() -> None:
    async with serving() as server, browsing() as page:
        await server.call("POST", "/v1/jobs", native("one", gpus=8))
        await page.open(f"{server.url}/#/job/default/%3Cimg%20src=x%20onerror=alert(1)%3E")
        await page.until("!trouble.hidden && trouble.textContent.includes('<img')")
        assert not await page.run("document.querySelector('img')")


async def test_a_server_that_is_gone_is_told(server: Server) -> None:
    async with browsing() as page:
        async with serving() as leaving:
            await page.open(leaving.url)
            await page.until("document.querySelector('.tiles')")
        await page.until("state.className === 'lost'")
        await page.until("!trouble.hidden")


@pytest.mark.parametrize("width", [360, 1280])
async def test_nothing_is_wider_than_the_screen(width: int) -> None:
    async with serving() as server, browsing() as page:
        name = "a-very-long-name-that-goes-on-and-on-and-on"
        await server.call("POST", "/v1/jobs", native(name, namespace="a" * 60, gpus=8))
        await page.open(server.url)
        await page.until(f"{ROWS}.length === 1")
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=800, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        assert await page.run("document.documentElement.scrollWidth") <= width
