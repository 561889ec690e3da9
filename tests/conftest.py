"""What holds for all tests."""

import signal

import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # where the engines are installed it is not
    pass
else:  # a machine that does other work as well is slow at times, which says nothing of the code
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _interrupts():
    """Take interrupts again: a shell's background job ignores them, and so would every program that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
