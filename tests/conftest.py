"""What holds for all tests."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def _interrupts():
    """Take interrupts again: a shell's background job ignores them, and so would every program that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
