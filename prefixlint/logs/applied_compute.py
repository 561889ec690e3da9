"""Agentic length traces (Applied Compute, read by Dynamo): the lengths of each turn of a conversation, no content.

`{"num_turns", "input_prompt_length", "assistant_response_length": […], "tool_call_output_length": […]}`. A later
turn surely continues the one before, but whether conversations share anything is not in the trace: no hit rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs._lengths import Refusal

if TYPE_CHECKING:
    from prefixlint.logs import Reader, Record, RecordKind

NAME = "applied-compute"
KIND: RecordKind = "json"


def detect(record: Record) -> int:
    """Look for the length of the first prompt and the number of turns."""
    value = record.value
    return 95 if isinstance(value, dict) and {"num_turns", "input_prompt_length"} <= value.keys() else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Refusal(detect)
