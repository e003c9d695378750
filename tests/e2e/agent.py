"""A coding agent's conversation: system prompt, tools, task, steps with parallel tool calls, results, remarks.

The agent's own steps are written here, since a model of 135 million parameters calls no tools; what is real are the
requests, the answers and the refusals.
"""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]

SYSTEM = (
    "You are a careful coding agent in a Python repository. Read before you write, keep every change small, run the"
    " tests after each change, and report what you did in one or two sentences. Never touch generated files."
)
TASK = (
    "The billing service rounds invoices wrongly. Find every place that rounds money, make them use one function, and"
    " keep the public names as they are. Never change the database schema."
)


def _tool(name: str, description: str, parameter: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("read_file", "Read a file of the repository.", "path"),
    _tool("search", "Search the repository for a pattern.", "pattern"),
    _tool("run_tests", "Run the tests of a folder.", "path"),
]

_WORDS = """
invoice total amount currency round decimal ledger customer account balance tax discount line item payment refund
exchange rate period report monthly statement due date credit note budget cost price quantity unit net gross
""".split()  # noqa: SIM905 - words read better than a column of quotes


def opening() -> list[Message]:
    """The first request: system prompt and task."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]


def step(number: int) -> list[Message]:
    """One step: a remark with three parallel calls, their results of 300 to 3,000 characters, a closing sentence."""
    calls = [
        _call(number, "read", "read_file", path=f"billing/module_{number}.py"),
        _call(number, "find", "search", pattern=f"round_{_WORDS[number % len(_WORDS)]}"),
        _call(number, "test", "run_tests", path=f"tests/billing/test_module_{number}.py"),
    ]
    results = [
        _source(number, 3_000),
        _hits(number, 1_000),
        f"{number + 3} passed, 0 failed\n" + _hits(number + 7, 300),
    ]
    return [
        {"role": "assistant", "content": f"Now module {number}.", "tool_calls": calls},
        *(_result(call, text) for call, text in zip(calls, results, strict=True)),
        {"role": "assistant", "content": f"Module {number} now rounds with `money.quantize`; its tests pass."},
        {"role": "user", "content": f"Good. Go on after module {number}, and keep the names."},
    ]


def conversation(steps: int) -> list[Message]:
    """The whole history after so many steps."""
    return [*opening(), *(message for number in range(1, steps + 1) for message in step(number))]


def _call(number: int, short: str, name: str, **arguments: str) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{short}_{number}", "type": "function", "function": function}


def _result(call: Message, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def _line(seed: int) -> str:
    """A line that our meter and the model's own tokenizer count alike."""
    one, two, three, four, five = (_WORDS[(seed * 7 + offset * 5) % len(_WORDS)] for offset in range(5))
    return f"    # the {one} of each {two} is rounded to the {three} before the {four} is written to the {five}"


def _source(number: int, characters: int) -> str:
    lines = [f"def settle_{number}(invoice):"]
    while sum(map(len, lines)) + len(lines) < characters:
        lines.append(_line(number * 31 + len(lines)))
    return "\n".join(lines)[:characters]


def _hits(number: int, characters: int) -> str:
    lines: list[str] = []
    while sum(map(len, lines)) + len(lines) < characters:
        lines.append(f"billing/module_{number}.py:{_line(number * 17 + len(lines)).strip()}")
    return "\n".join(lines)[:characters]
