"""A headless browser in which pages are looked at."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

__all__ = ["Browser"]

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

_MODIFIERS = (Keys.CONTROL, Keys.SHIFT)
_INTERNAL = ("chrome://", "chrome-untrusted://")
"""How the addresses of Chromium's own pages begin, such as the one of a new tab."""


class Browser:
    """Chromium without a window; a test that wants one is skipped where there is none."""

    def __init__(self, profile: Path) -> None:
        driver = shutil.which("chromedriver")
        program = shutil.which("chromium") or shutil.which("google-chrome")
        if driver is None or program is None:
            pytest.skip("needs chromium and chromedriver to look at the page")
        options = ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver = Chrome(options=options, service=Service(driver))
        self._driver.get("about:blank")

    def close(self) -> None:
        """End the browser."""
        self._driver.quit()

    def open(self, page: Path) -> tuple[list[str], list[str]]:
        """Open a file; give what the console said and which addresses the page asked for."""
        self._said("browser")
        self._said("performance")
        self._driver.get(page.as_uri())
        console = self._said("browser")
        events = [json.loads(said)["message"] for said in self._said("performance")]
        asked = [
            str(event["params"]["request"]["url"])
            for event in events
            if event["method"] == "Network.requestWillBeSent"
            and not event["params"]["documentURL"].startswith(_INTERNAL)
        ]
        return console, asked

    def go(self, address: str) -> None:
        """Open an address."""
        self._driver.get(address)

    def press(self, *keys: str) -> None:
        """Press keys one after the other; `Keys.CONTROL + "s"` is pressed as one."""
        for key in keys:
            chain = ActionChains(self._driver)
            *held, last = list(key) if key[0] in _MODIFIERS else [key]
            for each in held:
                chain.key_down(each)
            chain.send_keys(last)
            for each in held:
                chain.key_up(each)
            chain.perform()

    def double_click(self, selector: str, text: str) -> None:
        """Double-click the first element of a CSS selector that shows a text."""
        found = self._driver.find_elements(By.CSS_SELECTOR, selector)
        element = next(each for each in found if text in each.text)
        ActionChains(self._driver).double_click(element).perform()

    def _said(self, log: str) -> list[str]:
        """Return what a log has had since it was last asked for."""
        entries: Any = self._driver.get_log(log)  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in entries]

    def look(self, width: int, scheme: str) -> None:
        """See the page at a width, light or dark."""
        self._driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        height = int(self.ask("return document.documentElement.scrollHeight"))
        self._driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**size, "height": height}
        )

    def ask(self, script: str) -> Any:
        """Run a script of ours in the page and give what it returns."""
        return self._driver.execute_script(script)

    def picture(self, file: Path) -> Path:
        """Write what is seen as PNG."""
        assert self._driver.save_screenshot(str(file))
        return file
