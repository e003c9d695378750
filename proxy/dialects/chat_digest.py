"""The normalised digest of a chat message, and what else is known of it."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.core.identity import canonical, framed, load_unique
from proxy.core.transcript import Facts
from proxy.dialects.chat_items import RESULT_ROLES, answered, argument_field, calls, function_of
from proxy.dialects.digest import EMPTY, IGNORED, arguments, content_fields, others
from proxy.dialects.parts import Message, loads

__all__ = ["facts"]

#: What is read by name of a message, of a call, and of what is called.
_READ = IGNORED | {"role", "content", "tool_calls", "function_call", "thinking", "thinking_blocks"}
_READ_IN_CALL = IGNORED | {"type", "index"}
_READ_IN_FUNCTION = frozenset({"name"})
#: Roles whose text no replacement may leave out.
_STEADY = ("system", "developer")


def facts(raw: bytes) -> Facts | None:
    """What is known of a message; None where the bytes are no object with a role.

    A message that cannot be read exactly (a key named twice, say) is opaque: digested as it stands.
    """
    loose = loads(raw)
    role = loose.get("role")
    if not isinstance(role, str) or not role:
        return None
    try:
        exact = load_unique(raw)
        fields = list(_fields(exact)) if isinstance(exact, dict) else []
        digest = framed((role, *fields)) if fields else b""
    except (ValueError, RecursionError):
        digest = framed(("opaque", raw))
    result = answered(loose)
    return Facts(
        role=role,
        digest=digest,
        opens=tuple(call.id for call in calls(loose)) if role == "assistant" else (),
        answers=(result,) if role in RESULT_ROLES else (),
        stays=role in _STEADY,
    )


def _fields(message: dict[str, object]) -> Iterator[str]:
    """The fields that make a message what it is, in a fixed order, none for an empty one."""
    yield from content_fields(message.get("content"), thinks=message.get("role") == "assistant")
    yield from _call_fields(message)
    for key, value in others(message, _READ):
        if key == "tool_call_id" and isinstance(value, str):
            yield from ("result", value)
        else:
            yield from ("field", key, canonical(value))


def _call_fields(message: dict[str, object]) -> Iterator[str]:
    listed = message.get("tool_calls")
    for value in listed if isinstance(listed, list) else [listed]:
        if isinstance(value, dict):
            called = "function" if isinstance(value.get("function"), dict) else "custom"
            yield from ("call", canonical(value.get("id")))
            yield from _function_fields(function_of(value), free=called == "custom")
            yield from ("beside", canonical(dict(others(value, _READ_IN_CALL | {called}))))
        elif value not in EMPTY:
            yield from ("calls", canonical(value))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield "legacy"
        yield from _function_fields(legacy)
    elif legacy not in EMPTY:
        yield from ("calls", canonical(legacy))


def _function_fields(function: Message, *, free: bool = False) -> Iterator[str]:
    """Name, arguments and the rest of what is called; arguments of a `free` one are text, never JSON."""
    given = function.get(argument_field(function))
    if not isinstance(given, str):
        given = "" if given is None else canonical(given)
    elif not free:
        given = arguments(given)
    rest = canonical(dict(others(function, _READ_IN_FUNCTION | {argument_field(function)})))
    yield from ("function", canonical(function.get("name")), given, rest)
