"""The extension in a window of VS Code, which `code-server` serves to a browser.

Skipped unless `code-server` is on the PATH; CONTRIBUTING.md says how to get it from npm.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from editors.packages import npm
from notebook_samples import code, notebook
from processes import stopped
from report.browser import Browser
from selenium.webdriver import Keys

PATIENCE = 90
SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\nprint(torch.ones(1))\n"
SETTINGS = {
    "torchlint.path": str(Path(sys.executable).parent / "torchlint"),
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
}
FILES = ".explorer-folders-view .monaco-list-row"
PROBLEMS = ".markers-panel .monaco-list-row"
TEXTS = "return Array.from(document.querySelectorAll('{}'), one => one.textContent).join('\\n')"


@pytest.fixture
def server(extension: Path, tmp_path: Path) -> Iterator[str]:
    """Yield the address at which a server shows a folder with the extension installed."""
    program = shutil.which("code-server")
    if program is None:
        pytest.skip("needs code-server on the PATH")
    packed = npm(extension, "run", "--silent", "package")
    assert packed.returncode == 0, packed.stderr
    data, folder = tmp_path / "data", tmp_path / "project"
    (data / "User").mkdir(parents=True)
    (data / "User" / "settings.json").write_text(json.dumps(SETTINGS))
    (folder).mkdir()
    (folder / "train.py").write_text(SLOW)
    (folder / "train.ipynb").write_text(notebook(code("x = 1\n"), code(SLOW)))
    places = ["--user-data-dir", str(data), "--extensions-dir", str(tmp_path / "extensions")]
    vsix = str(extension / "torchlint.vsix")
    subprocess.run([program, *places, "--install-extension", vsix], check=True, timeout=PATIENCE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--auth", "none", "--bind-addr", address, "--disable-telemetry"]
    running = subprocess.Popen(
        [program, *words, *places, str(folder)], stdout=subprocess.PIPE, text=True
    )
    with stopped(running, 5 * PATIENCE):
        assert running.stdout is not None
        assert any("HTTP server listening" in line for line in running.stdout)
        yield f"http://{address}/?folder={folder}"
        running.terminate()
        running.wait(PATIENCE)


@pytest.fixture
def window(server: str, tmp_path: Path) -> Iterator[Browser]:
    with closing(Browser(tmp_path / "profile")) as browser:
        browser.go(server)
        yield browser


def shown(window: Browser, selector: str) -> str:
    """Return the texts of the elements of a CSS selector, one a line."""
    return str(window.ask(TEXTS.format(selector)))


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)


def test_findings_are_shown_counted_and_fixed(window: Browser, tmp_path: Path) -> None:
    until(lambda: "train.py" in shown(window, FILES))
    window.double_click(FILES, "train.py")
    until(lambda: "torchlint: 1" in shown(window, ".statusbar-item"))
    window.press(Keys.CONTROL + Keys.SHIFT + "m")
    until(lambda: "TL801" in shown(window, PROBLEMS))
    window.double_click(FILES, "train.py")
    window.press(Keys.F1, "torchlint: Fix All")
    until(lambda: "Fix All Safe Findings" in shown(window, ".quick-input-list"))
    window.press(Keys.ENTER)
    until(lambda: "TL801" not in shown(window, PROBLEMS))
    window.press(Keys.CONTROL + "s")
    script = tmp_path / "project" / "train.py"
    until(lambda: "anomaly" not in script.read_text())


def test_the_cell_of_a_notebook_has_its_finding(window: Browser) -> None:
    until(lambda: "train.ipynb" in shown(window, FILES))
    window.double_click(FILES, "train.py")
    until(lambda: "torchlint: 1" in shown(window, ".statusbar-item"))
    window.double_click(FILES, "train.ipynb")
    window.press(Keys.CONTROL + Keys.SHIFT + "m")
    until(lambda: "train.ipynb" in shown(window, PROBLEMS))
    assert "TL801" in shown(window, PROBLEMS)
