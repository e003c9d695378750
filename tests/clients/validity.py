"""What an upstream would reject in a conversation, by each API's documentation; nothing of `proxy` is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def problem(name: str, body: Json) -> str | None:
    """The first fault of a body of that API, None for none."""
    field, rules = _RULES[name]
    items = body.get(field)
    if name == "responses" and isinstance(items, str) and items:
        return None
    if not isinstance(items, list) or not items:
        return f"no {field}"
    return next((fault for rule in rules for fault in rule(body, items)), None)


def _chat_pairs(body: Json, items: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    waiting: set[str] = set()
    for at, item in enumerate(items):
        if item.get("role") == "tool":
            if item.get("tool_call_id") not in waiting:
                yield f"messages[{at}]: a result without a call before it"
            waiting.discard(str(item.get("tool_call_id")))
            continue
        if waiting:
            yield f"messages[{at}]: calls without results before it"
        calls = [call["id"] for call in item.get("tool_calls") or ()]
        if len({*calls} - seen) < len(calls):
            yield f"messages[{at}]: a call id is used twice"
        waiting = {*calls}
        seen |= waiting
    if waiting:
        yield "the last calls have no results"


def _chat_items(body: Json, items: list[Json]) -> Iterator[str]:
    for at, item in enumerate(items):
        if item.get("role") not in ("system", "developer", "user", "assistant", "tool"):
            yield f"messages[{at}]: role {item.get('role')}"
        if not item.get("content") and not item.get("tool_calls"):
            yield f"messages[{at}]: empty"


#: Kinds of input items that clients under test send.
_KINDS = {"message", "reasoning"} | {
    f"{kind}_call{end}" for kind in ("function", "custom_tool") for end in ("", "_output")
}


def _responses_pairs(body: Json, items: list[Json]) -> Iterator[str]:
    calls: set[str] = set()
    waiting: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind.endswith("_call"):
            if item["call_id"] in calls:
                yield f"input[{at}]: a call id is used twice"
            calls.add(item["call_id"])
            waiting.add(item["call_id"])
        elif kind.endswith("_output"):
            if item["call_id"] not in waiting:
                yield f"input[{at}]: an output without a call before it"
            waiting.discard(item["call_id"])
    if waiting:
        yield f"calls without outputs: {len(waiting)}"


def _responses_items(body: Json, items: list[Json]) -> Iterator[str]:
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind not in _KINDS:
            yield f"input[{at}]: type {kind}"
        if kind == "message" and not item.get("content"):
            yield f"input[{at}]: empty"
        if kind == "reasoning" and not _leads(items[at + 1] if at + 1 < len(items) else {}):
            yield f"input[{at}]: reasoning without the item it led to"


def _leads(item: Json) -> bool:
    kind = str(item.get("type"))
    return kind.endswith("_call") or kind == "reasoning" or item.get("role") == "assistant"


def _messages_pairs(body: Json, items: list[Json]) -> Iterator[str]:
    waiting: list[str] = []
    seen: set[str] = set()
    for at, (role, blocks) in enumerate(_merged(items)):
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            yield f"message {at}: {len(waiting)} calls before it, {len(results)} results in it"
        if any(block["type"] == "tool_result" for block in blocks[len(results) :]):
            yield f"message {at}: a result after other content"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if waiting and role != "assistant":
            yield f"message {at}: a call of the user"
        if len({*waiting} - seen) < len(waiting):
            yield f"message {at}: a call id is used twice"
        seen |= {*waiting}
    if waiting:
        yield "the last calls have no results"


def _messages_items(body: Json, items: list[Json]) -> Iterator[str]:
    if not isinstance(body.get("max_tokens"), int):
        yield "no max_tokens"
    if items[0].get("role") != "user":
        yield "the first message is not the user's"
    for at, (_, blocks) in enumerate(_merged(items)):
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"message {at}: empty"


def _messages_marks(body: Json, items: list[Json]) -> Iterator[str]:
    system = body.get("system")
    blocks = [*(system if isinstance(system, list) else ()), *body.get("tools", ())]
    blocks += [block for _, found in _merged(items) for block in found]
    marks = sum("cache_control" in block for block in blocks)
    if marks > 4:
        yield f"{marks} cache marks"


def _merged(items: list[Json]) -> list[tuple[str, list[Json]]]:
    """Role and blocks of each message; neighbours of one role are one message to this API."""
    merged: list[tuple[str, list[Json]]] = []
    for item in items:
        content = item["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if merged and merged[-1][0] == item["role"]:
            merged[-1][1].extend(blocks)
        else:
            merged.append((item["role"], list(blocks)))
    return merged


_RULES = {
    "chat": ("messages", (_chat_pairs, _chat_items)),
    "responses": ("input", (_responses_pairs, _responses_items)),
    "messages": ("messages", (_messages_pairs, _messages_items, _messages_marks)),
}
