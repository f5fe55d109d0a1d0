"""Debian's Chromium without a window, driven by Playwright."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
WAIT_MS_MAX = 15_000
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    assert CHROMIUM is not None, "apt-get install chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Tab:
    """A tab in a browser profile of its own, with what went wrong in it."""

    page: Page
    origin: str
    # What the console shows as an error or a warning, and exceptions.
    errors: list[str] = field(default_factory=list)
    # Requests to other servers.
    outside: list[str] = field(default_factory=list)

    async def go(self, fragment: str = "") -> None:
        """Open an address of the dashboard and wait until the page shows its data."""
        await self.page.goto(f"{self.origin}/{fragment}")
        await self.settled()

    async def settled(self) -> None:
        await self.page.wait_for_selector("main > .page:not([aria-busy])")

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        return await self.page.evaluate(script)

    async def until(self, condition: str) -> None:
        """Wait until an expression is true in the page; one that throws is not true yet.

        Playwright's own `wait_for_function` needs `eval`, which the page forbids.
        """
        try:
            async with asyncio.timeout(WAIT_MS_MAX / 1000):
                while not await self.run(f"try {{ Boolean({condition}) }} catch {{ false }}"):  # noqa: ASYNC110
                    await asyncio.sleep(0.03)
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            raise AssertionError(f"never: {condition}\n{self.errors}\n{shown}") from None

    async def rows(self, label: str = "Jobs") -> list[list[str]]:
        """Return the cells of a table's rows, without those that hold a checkbox."""
        cells = (
            "rows => rows.map(r => [...r.cells].filter(c => !c.matches('.choose'))"
            ".map(c => c.innerText.trim()))"
        )
        texts = await self.page.eval_on_selector_all(f'table[aria-label="{label}"] tbody tr', cells)
        return [list(row) for row in texts]


@asynccontextmanager
async def open_tab(
    browser: Browser,
    origin: str,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator[Tab]:
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 600
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(WAIT_MS_MAX)
        tab = Tab(page, origin)
        page.on("console", lambda message: _note_console(tab, message))
        page.on("pageerror", lambda error: tab.errors.append(str(error)))
        page.on("request", lambda request: _note_request(tab, request))
        yield tab
    finally:
        await context.close()


def _note_console(tab: Tab, message: ConsoleMessage) -> None:
    if message.type in ("error", "warning"):
        tab.errors.append(f"{message.text} {message.location.get('url', '')}")


def _note_request(tab: Tab, request: Request) -> None:
    parts = urlsplit(request.url)
    if parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" != tab.origin:
        tab.outside.append(request.url)
