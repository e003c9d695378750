"""Reading one chat message: its texts, its calls and results, its weight."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.identity import canonical
from proxy.core.meter import Weight
from proxy.dialects import Call
from proxy.dialects.parts import (
    PER_CALL,
    PER_MESSAGE,
    REASONING_FIELD,
    THINK,
    Message,
    loads,
    said_parts,
    weighed,
)

__all__ = [
    "RESULT_ROLES",
    "answered",
    "argument_field",
    "calls",
    "function_of",
    "visible_text",
    "weigh",
]

RESULT_ROLES = ("tool", "function")
#: Fields of a message besides content and calls that the model reads, by how they begin.
_ALSO_READ = (REASONING_FIELD, "refusal")


def calls(message: Message) -> tuple[Call, ...]:
    """The tool calls of a message in order, the legacy `function_call` among them (its id is its name)."""
    listed = message.get("tool_calls")
    found = [_call(value) for value in listed if isinstance(value, dict)] if isinstance(listed, list) else []
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(_call({"id": legacy.get("name"), "function": legacy}))
    return tuple(found)


def answered(message: Message) -> str:
    """The id of the call a result answers; a legacy function result answers by name."""
    value = message.get("tool_call_id") or message.get("name")
    return value if isinstance(value, str) else ""


def visible_text(message: Message) -> str:
    """All text of a message for a reader: without reasoning, media as `[kind]` markers."""
    texts = list(said_parts(message.get("content")))
    refusal = message.get("refusal")
    whole = "\n".join((*texts, refusal)) if isinstance(refusal, str) and refusal else "\n".join(texts)
    return THINK.sub("", whole) if message.get("role") == "assistant" else whole


def weigh(raw: bytes) -> Weight:
    """Texts and fixed tokens of a message; the text itself for anything that is no message."""
    message = loads(raw)
    if not isinstance(message.get("role"), str):
        return Weight(texts=(raw.decode("utf-8", "replace"),), fixed=0)
    texts, fixed = weighed(message.get("content"))
    fixed += PER_MESSAGE
    for call in calls(message):
        texts += [call.name, call.arguments]
        fixed += PER_CALL
    texts += [value for key, value in message.items() if isinstance(value, str) and key.startswith(_ALSO_READ)]
    return Weight(texts=tuple(text for text in texts if text), fixed=fixed)


def function_of(call: Message) -> Message:
    """What a call calls: a function, or a custom tool whose input is free text."""
    found = (call.get("function"), call.get("custom"))
    return next((value for value in found if isinstance(value, dict)), {})


def argument_field(function: Message) -> str:
    """The field that holds what is handed over: `input` for custom tools."""
    return "arguments" if "arguments" in function else "input"


def _call(value: Mapping[str, object]) -> Call:
    function = function_of(value)
    arguments = function.get(argument_field(function))
    return Call(
        id=str(value.get("id") or ""),
        name=str(function.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else "" if arguments is None else _readable(arguments),
    )


def _readable(value: object) -> str:
    try:
        return canonical(value)
    except ValueError:
        return ""
