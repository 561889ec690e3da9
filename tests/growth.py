"""How work grows with its input, counted and not timed: what a count says does not depend on what else a machine does."""

import sys


def work(function, *args) -> int:
    """How many lines of Python run, and how many functions are called from them, while `function(*args)` does.

    What one call does inside compiled code (one regular expression over one long text) is not counted.
    """
    count = 0

    def line(_frame, _event, _arg):
        nonlocal count
        count += 1
        return line

    def call(_frame, event, _arg):
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        function(*args)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count
