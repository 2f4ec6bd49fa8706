"""What all tests share: a busy machine fails no property test, and no test waits for ever."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

LIMIT = 600
"""Seconds for a test, and as many for its fixtures; pytest's `faulthandler_timeout` is longer."""


def _fail(*_: object) -> NoReturn:
    pytest.fail(f"takes longer than {LIMIT} s")


@contextmanager
def _limited() -> Iterator[None]:
    """Fail what takes too long, so that it stops the processes that it has started."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _fail)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Limit the time in which fixtures are made."""
    with _limited():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Limit the time of a test."""
    with _limited():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Limit the time in which fixtures end."""
    with _limited():
        yield
