from __future__ import annotations

import json

import pytest
from cli_shell import TRAIN, Shell

from torchlint.cli.check import check
from torchlint.cli.fix import fix
from torchlint.config.settings import key_of, option_names

NO_OPTIONS = {
    "rules",
    "extend_safe_fixes",
    "extend_unsafe_fixes",
    "severity",
    "required_version",
    "project_root",
    "src",
}
"""Settings that only a configuration file has."""


@pytest.mark.parametrize("command", [check, fix], ids=["check", "fix"])
def test_every_setting_is_an_option_too(command: object) -> None:
    options = {name for param in command.params for name in param.opts}  # type: ignore[attr-defined]
    assert {f"--{key_of(name)}" for name in set(option_names()) - NO_OPTIONS} <= options


def configured(shell: Shell, text: str) -> None:
    """Put a script into the folder, and settings that select the tiny pack."""
    shell.write("src/a.py", TRAIN)
    shell.write("torchlint.toml", f'select = ["XY"]\ncache-dir = "kept"\n{text}\n')


def test_the_report_is_as_the_configuration_says(quick: Shell) -> None:
    configured(quick, 'output-format = "json"\nstatistics = true\nexit-zero = true')
    done = quick.run("check")
    assert done.returncode == 0
    assert [each["code"] for each in json.loads(done.stdout)] == ["XY201", "XY301", "XY401"]
    assert quick.run("check", "--output-format", "concise").stdout.startswith("1  XY201")
    done = quick.run("check", "--output-format", "sarif")
    assert done.stderr.startswith("error: `--statistics` is not supported by `sarif`")


def test_paths_count_from_the_file_that_names_them(shell: Shell) -> None:
    configured(shell, 'output-file = "report.txt"\nquiet = true')
    inner = Shell(shell.folder / "src")
    assert inner.run("check").stdout == ""
    assert shell.read("report.txt").startswith("a.py:3:1: XY201")
    assert "Found" not in shell.read("report.txt")
    assert (shell.folder / "kept" / ".gitignore").is_file()
    assert not (shell.folder / "src" / "kept").exists()
    inner.run("check", "--output-file", "own.txt")
    assert inner.read("own.txt") == shell.read("report.txt")


def test_nothing_is_kept_where_no_cache_is_wanted(quick: Shell) -> None:
    configured(quick, "no-cache = true\nverbose = true\njobs = 2")
    assert quick.run("check").stderr == "1 file checked, 0 findings suppressed\n"
    assert not (quick.folder / "kept").exists()


def test_colours_may_be_configured(quick: Shell) -> None:
    configured(quick, 'color = "always"')
    assert "\x1b[1m" in quick.run("check").stdout
    assert "\x1b" not in quick.run("check", "--color", "never").stdout


def test_a_run_is_as_the_folder_it_is_called_in_says(quick: Shell) -> None:
    configured(quick, 'output-format = "concise"')
    quick.write("src/torchlint.toml", 'output-format = "json"\nselect = ["XY4"]\n')
    done = quick.run("check", "src")
    assert done.stdout.startswith("src/a.py:6:1: XY401")


def test_a_setting_of_the_run_finds_results_that_are_kept(quick: Shell) -> None:
    configured(quick, "")
    quick.run("check")
    (kept,) = (each for each in (quick.folder / "kept").glob("*.json") if "-" not in each.name)
    before = kept.read_text()
    quick.run("check", "--output-format", "json", "--quiet")
    assert kept.read_text() == before
    assert len(json.loads(before)) == 1


def test_config_shows_every_setting_with_its_source(quick: Shell) -> None:
    configured(quick, 'output-format = "gitlab"\njobs = 3\n[rules.slow-call]')
    done = quick.run("config", "src", "--unsafe-fixes")
    lines = done.stdout.splitlines()
    file = quick.folder / "torchlint.toml"
    assert f'output-format = "gitlab"  # {file}' in lines
    assert f'cache-dir = "{quick.folder}/kept"  # {file}' in lines
    assert f"jobs = 3  # {file}" in lines
    assert "unsafe-fixes = true  # command line" in lines
    assert "statistics = false  # default" in lines
    assert "# output-file: standard output" in lines
    assert "# baseline: none" in lines
    assert f"[rules.slow-call]  # {file}" in lines
    shown = {line.removeprefix("# ").partition(" ")[0].rstrip(":") for line in lines}
    assert {key_of(name) for name in option_names()} - {"rules"} <= shown


def test_a_shell_gets_its_script_and_completes_rules(quick: Shell) -> None:
    done = quick.run("completions", "bash")
    assert "complete -o nosort -F _torchlint_completion torchlint" in done.stdout
    assert quick.run("generate-shell-completion", "bash").stdout == done.stdout
    assert "#compdef torchlint" in quick.run("completions", "zsh").stdout
    assert "complete --no-files --command torchlint" in quick.run("completions", "fish").stdout
    done = quick.run("completions", "bsh")
    assert done.stderr.endswith("none of bash, zsh, fish, powershell, did you mean `bash`?\n")

    def completed(line: str) -> list[str]:
        words = line.split(" ")
        done = quick.run(
            environment={
                "_TORCHLINT_COMPLETE": "bash_complete",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(words) - 1),
            }
        )
        return [each.removeprefix("plain,") for each in done.stdout.splitlines()]

    assert completed("torchlint expl") == ["explain"]
    assert completed("torchlint check --select XY2") == ["XY201"]
    assert completed("torchlint check --ignore XY201,XY4") == ["XY201,XY401"]
    assert completed("torchlint check --select slow") == ["slow-call"]
    assert completed("torchlint check --select AL") == ["ALL"]
    assert completed("torchlint check --output-format git") == ["github", "gitlab"]
    assert completed("torchlint check --write-b") == ["--write-baseline"]
    assert completed("torchlint explain XY4") == ["XY401"]


def test_powershell_gets_a_script_and_words_with_their_help(quick: Shell) -> None:
    script = quick.run("completions", "powershell").stdout
    assert script.startswith("Register-ArgumentCompleter -Native -CommandName torchlint")
    line = {"COMP_WORDS": "torchlint check --select XY2", "COMP_CWORD": "3"}
    done = quick.run(environment={"_TORCHLINT_COMPLETE": "powershell_complete", **line})
    assert done.stdout.splitlines() == ["plain", "XY201", "slow-call"]
