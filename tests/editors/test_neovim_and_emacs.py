"""Neovim and Emacs with the configurations of the page on editors, where they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import ROOT

TEXT = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\nprint(torch.zeros(1))\n"
PAGE = (ROOT / "docs" / "guide" / "editors.md").read_text(encoding="utf-8")
LUA, FIX_ALL = re.findall(r"```lua\n(.*?)```", PAGE, re.DOTALL)
EGLOT, LSP_MODE = re.findall(r"```lisp\n(.*?)```", PAGE, re.DOTALL)
NEOVIM = (
    "vim.wait(30000, function() return #vim.diagnostic.get(0) > 0 end)\n"
    "print('found ' .. vim.diagnostic.get(0)[1].code)\n"
    f"{FIX_ALL}\n"
    "vim.wait(30000, function() return vim.bo.modified end)\n"
    "print('fixed ' .. table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '/'))\n"
    "vim.cmd('qa!')\n"
)
WITH_EGLOT = """
(setq eglot-sync-connect 30)
(find-file "train.py") (python-mode)
(call-interactively 'eglot)
(flymake-start)
(dotimes (_ 150) (unless (flymake-diagnostics) (accept-process-output nil 0.2) (flymake-start)))
(princ (format "found %s" (mapcar #'flymake-diagnostic-text (flymake-diagnostics))))
(kill-emacs 0)
"""
WITH_LSP_MODE = """
(setq lsp-auto-guess-root t lsp-diagnostics-provider :none lsp-restart 'ignore
      lsp-enable-snippet nil lsp-enable-file-watchers nil)
(find-file "train.py") (python-mode)
(lsp)
(dotimes (_ 150) (when (= 0 (hash-table-count (lsp-diagnostics))) (accept-process-output nil 0.2)))
(princ (format "found %S" (hash-table-values (lsp-diagnostics))))
(kill-emacs 0)
"""


def shown(folder: Path, *command: str) -> str:
    """Return what an editor prints in a folder with a script."""
    (folder / "train.py").write_text(TEXT, encoding="utf-8")
    (folder / ".git").mkdir()
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout + done.stderr


def version(program: str) -> tuple[int, ...]:
    """Return the version that an editor says it has, empty where it is not installed."""
    if shutil.which(program) is None:
        return ()
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    numbers = re.search(r"(\d+)\.(\d+)", said.stdout)
    return tuple(map(int, numbers.groups())) if numbers else ()


@pytest.mark.skipif(version("nvim") < (0, 11), reason="needs Neovim 0.11")
def test_neovim_shows_findings_and_fixes_them(tmp_path: Path) -> None:
    config = tmp_path / "config" / "nvim"
    config.mkdir(parents=True)
    (config / "init.lua").write_text(LUA, encoding="utf-8")
    (tmp_path / "try.lua").write_text(NEOVIM, encoding="utf-8")
    said = shown(tmp_path, "nvim", "--headless", "train.py", "-c", "luafile try.lua")
    assert "found TL801" in said
    assert "fixed import torch" in said
    assert "set_detect_anomaly" not in said


@pytest.mark.parametrize(
    ("package", "text"),
    [("eglot", EGLOT + WITH_EGLOT), ("lsp-mode", LSP_MODE + WITH_LSP_MODE)],
    ids=["eglot", "lsp-mode"],
)
def test_emacs_shows_findings(tmp_path: Path, package: str, text: str) -> None:
    if not version("emacs"):
        pytest.skip("needs Emacs")
    file = tmp_path / "try.el"
    file.write_text(f"(package-initialize)\n(require '{package})\n{text}", encoding="utf-8")
    said = shown(tmp_path, "emacs", "--batch", "-l", str(file))
    if "Cannot open load file" in said:
        pytest.skip(f"needs {package}")
    assert "found" in said
    assert "TL801" in said
