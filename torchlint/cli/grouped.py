"""A click command whose help lists its options by subject."""

from __future__ import annotations

from typing import Final

import click

_SUBJECTS: Final = {
    "Measuring": (
        *("module", "quick", "budget", "steps", "warmup", "rounds"),
        *("seed", "device", "timeout"),
    ),
    "Comparing": ("against", "same_numbers", "fail_slower", "price"),
    "Processes": ("launcher", "nproc_per_node", "nnodes", "rdzv_endpoint"),
    "Fixes": (
        *("apply", "interactive", "fix", "fix_only", "diff", "show_fixes"),
        *("exit_non_zero_on_fix", "unsafe_fixes", "fixable", "unfixable"),
    ),
    "Rules": (
        *("select", "extend_select", "ignore", "extend_ignore", "per_file_ignores", "preview"),
        *("ignore_suppressions", "add_ignore", "target_torch", "target_device"),
    ),
    "Files": (
        *("exclude", "extend_exclude", "respect_gitignore", "force_exclude", "stdin_filename"),
        *("since", "results_only", "program", "show_files", "show_links"),
    ),
    "Report": (
        *("output_format", "output_file", "sort", "show_low", "statistics"),
        *("measured", "trace", "min_cost"),
        *("baseline", "write_baseline", "quiet", "verbose", "color"),
        *("as_json", "html", "history"),
    ),
    "Exit code": ("fail_on", "exit_zero"),
    "Cache": ("no_cache", "cache_dir"),
    "Run": ("watch", "jobs", "file_timeout"),
}
_REST: Final = "Configuration"


class GroupedCommand(click.Command):
    """A command with a section of options per subject in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by subject, in the order of the subjects."""
        subject_of = {name: subject for subject, names in _SUBJECTS.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in (*_SUBJECTS, _REST)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections[subject_of.get(param.name or "", _REST)].append(record)
        for subject, records in sections.items():
            if records:
                with formatter.section(subject):
                    formatter.write_dl(records)
