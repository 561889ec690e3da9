"""What freed memory costs, and that nothing breaks where the C library cannot be told."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from prefixlint import heap

_LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
_COUNT = """
    from pathlib import Path
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
"""


def _printed(program: str) -> list[int]:
    code = textwrap.dedent(_COUNT) + textwrap.dedent(program)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(line) for line in out.stdout.split()]


def _is_glibc() -> bool:
    return heap._library() is not None and hasattr(heap._library(), "malloc_trim")


@_LINUX
@pytest.mark.skipif(not _is_glibc(), reason="needs glibc")
def test_what_was_freed_in_pieces_goes_back_to_the_system() -> None:
    before, after = _printed("""
        from prefixlint import heap
        blocks = [bytes(4000) for _ in range(20_000)]
        last = bytes(4000)  # holds the end of the heap, so that freeing alone gives nothing back
        del blocks
        print(resident())
        heap.trim()
        print(resident())
    """)
    assert before - after > 20_000 * 4000 / 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_library", object)
    heap.trim()


def test_a_system_without_a_c_library_of_that_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str | None) -> None:
        raise TypeError(name)

    heap._library.cache_clear()
    monkeypatch.setattr("ctypes.CDLL", refuse)
    try:
        heap.trim()
        assert heap._library() is None
    finally:
        heap._library.cache_clear()
