"""`python -m prefixlint`."""

from __future__ import annotations

from prefixlint.cli import main

main(prog_name="prefixlint")
