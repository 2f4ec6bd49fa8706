"""JUnit's XML, which most CI services show as failed tests."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from torchlint.report.entry import Entry
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.text import printable

_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report, paint: Paint) -> str:
    """Return a suite per file with a failed case per finding."""
    count = len(report.entries)
    of_the_run = report.failed or not count
    suites = Element("testsuites", name="torchlint")
    _count(suites, count + of_the_run, count, int(report.failed))
    for path, entries in report.by_path():
        _add_suite(suites, path, entries)
    if of_the_run:
        _add_the_run(suites, report.failed)
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _count(element: Element, tests: int, failures: int, errors: int) -> None:
    element.attrib.update(tests=str(tests), failures=str(failures), errors=str(errors), time="0")


def _add_suite(suites: Element, path: str, entries: list[Entry]) -> None:
    name = _visible(path)
    suite = SubElement(suites, "testsuite", name=name, file=name)
    _count(suite, len(entries), len(entries), 0)
    classname = _visible(PurePath(path).with_suffix("").as_posix().replace("/", "."))
    for entry in entries:
        title = f"{entry.finding.code} {entry.card.name} {entry.place}"
        case = SubElement(suite, "testcase", name=title, classname=classname, time="0")
        message = _visible(entry.message + entry.remarks)
        failure = SubElement(case, "failure", type=entry.finding.code, message=message)
        advice = f"\n{_visible(entry.fix.title)} ({entry.fix.safety.word})" if entry.fix else ""
        failure.text = f"{name}:{entry.place}: {message}{advice}"


def _add_the_run(suites: Element, failed: bool) -> None:
    """Add a case for the run itself: services treat a report without cases as a failure."""
    suite = SubElement(suites, "testsuite", name="torchlint")
    _count(suite, 1, 0, int(failed))
    title = "the run" if failed else "nothing found"
    case = SubElement(suite, "testcase", name=title, classname="torchlint", time="0")
    if failed:
        SubElement(case, "error", type="failed", message="the run failed; see its log")


def _visible(text: str) -> str:
    """Escape what is invisible or not allowed in XML."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(text))
