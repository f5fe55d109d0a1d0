"""A real browser, driven over its own debugging protocol: Debian's chromium without a window."""

import asyncio
import base64
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
WAIT_S_MAX = 30.0
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """One tab. What went wrong in it, as its console would show it, is in `errors`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        self._heard = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        async for message in self._socket:
            told = message.json()
            if (answer := self._answers.pop(told.get("id", 0), None)) is not None:
                answer.set_result(told)
            elif told.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(told["params"]["exceptionDetails"]))
            elif told.get("method") == "Log.entryAdded":
                entry = told["params"]["entry"]
                if entry["level"] in ("error", "warning"):
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            elif told.get("method") == "Page.javascriptDialogOpening":
                self._ask("Page.handleJavaScriptDialog", accept=True)

    def _ask(self, method: str, **params: Any) -> asyncio.Future[dict[str, Any]]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._sending = asyncio.create_task(
            self._socket.send_json({"id": number, "method": method, "params": params})
        )
        return answer

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S_MAX):
            told = await self._ask(method, **params)
        assert "error" not in told, told
        return dict(told["result"])

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && document.body")

    async def run(self, script: str) -> Any:
        """What an expression comes to in the page."""
        told = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, condition: str) -> None:
        """Waits until an expression is true in the page."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while not await self.run(f"Boolean({condition})"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.run("document.body?.innerText")
            raise AssertionError(
                f"never came: {condition}; shown:\n{shown}\n{self.errors}"
            ) from None

    async def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key], **more,
            )  # fmt: skip

    async def look(
        self, path: Path, *, width: int = 1280, dark: bool = False, whole: bool = True
    ) -> None:
        """A picture of the whole page, or of what one sees first, for people."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def close(self) -> None:
        self._heard.cancel()
        with suppress(asyncio.CancelledError):
            await self._heard
        await self._socket.close()


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A browser with one empty tab and no memory."""
    assert CHROMIUM is not None, "apt-get install chromium"
    with tempfile.TemporaryDirectory(prefix="muster-browser-", ignore_cleanup_errors=True) as home:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM, *_FLAGS, f"--user-data-dir={home}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                address = await _tab(session, Path(home))
                page = Page(await session.ws_connect(address, max_msg_size=0))
                try:
                    yield page
                finally:
                    await page.close()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _tab(session: aiohttp.ClientSession, home: Path) -> str:
    """The address at which the tab listens, once there is one."""
    told = home / "DevToolsActivePort"
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if told.exists() and (lines := told.read_text().split()):
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                        tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
                        if tabs:
                            return str(tabs[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
