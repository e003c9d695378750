"""What an upstream would reject in one item, wherever it stands; and what no replacement may bring along.

Sealed is what an upstream signed or made, and knows again: thinking, reasoning, its own tools. It goes back as it came
or not at all. Cache marks count as sealed: an upstream takes four, and how many there are is the client's affair.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from proxy.core.identity import canonical
from proxy.core.transcript import Item
from proxy.dialects.parts import CACHE_MARK, Message

__all__ = ["Flaws", "beyond", "chat", "marks", "messages", "responses", "sealed_blocks", "sealed_items"]

#: Reads one item, gives a word for each fault in it.
Flaws = Callable[[Message], Iterator[str]]

_CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_RESPONSES_ROLES = ("system", "developer", "user", "assistant")
_MESSAGES_ROLES = ("user", "assistant", "system")
#: What an assistant's message of Responses may be made of.
_SPOKEN = ("output_text", "refusal")
#: Blocks of Messages that a replacement may write; of every other the upstream knows its own.
_OPEN_BLOCKS = ("text", "tool_use", "tool_result", "image", "document", "search_result")
#: Items of Responses that hold what only the upstream can read, or that stand for something it holds.
_SEALED_ITEMS = ("reasoning", "compaction", "item_reference")


def beyond(items: Sequence[Item], others: Sequence[Item]) -> list[Item]:
    """The items that are not among the others, or not as often."""
    left, found = Counter(item.key for item in others), []
    for item in items:
        if left[item.key] > 0:
            left[item.key] -= 1
        else:
            found.append(item)
    return found


def chat(message: Message) -> Iterator[str]:
    """A message without a form that providers take."""
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in _CHAT_ROLES:
        yield "a role that nobody knows"
    if content is not None or role != "assistant":
        yield from _content(content)
    if role == "tool":
        yield from _named(message, "tool_call_id")
    if calls is not None:
        yield from _listed(calls, "a list of calls that is none")
    for call in calls if isinstance(calls, list) else ():
        yield from _chat_call(call)


def responses(item: Message) -> Iterator[str]:
    """An item without a form that providers take."""
    kind = item.get("type", "message")
    if kind == "message":
        yield from _responses_message(item)
    elif kind == "function_call":
        yield from (*_named(item, "call_id"), *_named(item, "name"), *_text(item, "arguments"))
    elif kind == "custom_tool_call":
        yield from (*_named(item, "call_id"), *_named(item, "name"), *_text(item, "input"))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from (*_named(item, "call_id"), *_content(item.get("output")))


def messages(message: Message) -> Iterator[str]:
    """A message without a form that providers take: empty, with empty text, with results behind other blocks."""
    role, content = message.get("role"), message.get("content")
    if role not in _MESSAGES_ROLES:
        yield "a role that nobody knows"
    yield from _content(content)
    if isinstance(content, str) and not content.strip():
        yield "an empty text"
    results_are_over = False
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield from _block(block, role)
            if block.get("type") == "tool_result" and results_are_over:
                yield "a result behind other content"
            results_are_over = results_are_over or block.get("type") != "tool_result"


def marks(item: Message) -> Iterator[str]:
    """One word for each cache mark."""
    yield from ["a cache mark"] * _marks(item)


def sealed_items(item: Message) -> Iterator[str]:
    """What only an upstream can have made, of an item of Responses."""
    yield from marks(item)
    if item.get("type") in _SEALED_ITEMS:
        yield f"what only the upstream makes: {_print((item.get('id'), item.get('encrypted_content')))}"


def sealed_blocks(message: Message) -> Iterator[str]:
    """What only an upstream can have made, of a message of Messages."""
    yield from marks(message)
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") not in _OPEN_BLOCKS:
            bare = {key: value for key, value in block.items() if key != CACHE_MARK}
            yield f"what only the upstream makes: {_print(bare)}"


def _chat_call(call: object) -> Iterator[str]:
    if not isinstance(call, dict):
        yield "a call that is none"
        return
    yield from _named(call, "id")
    function = call.get("custom" if call.get("type") == "custom" else "function")
    if not isinstance(function, dict):
        yield "a call of nothing"
        return
    yield from (*_named(function, "name"), *_text(function, "input" if call.get("type") == "custom" else "arguments"))


def _responses_message(item: Message) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _RESPONSES_ROLES:
        yield "a role that nobody knows"
    yield from _content(content)
    parts = content if isinstance(content, list) else ()
    if any(isinstance(part, dict) and (part.get("type") in _SPOKEN) is not (role == "assistant") for part in parts):
        yield "content of another role"


def _block(block: Message, role: object) -> Iterator[str]:
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and not (isinstance(text, str) and text.strip()):
        yield "an empty text"
    if kind in ("tool_use", "tool_result") and role != ("assistant" if kind == "tool_use" else "user"):
        yield "a call or a result of the wrong role"
    if kind == "tool_use":
        yield from (*_named(block, "id"), *_named(block, "name"))
        if not isinstance(block.get("input"), dict):
            yield "a call whose input is no object"
    if kind == "tool_result":
        yield from _named(block, "tool_use_id")
        yield from _inner(block.get("content"))


def _inner(content: object) -> Iterator[str]:
    """Of a result: it may be empty, but no text in it."""
    if content is None or content == []:
        return
    yield from _content(content)
    parts = content if isinstance(content, list) else ()
    if any(isinstance(part, dict) and part.get("type") == "text" and not part.get("text") for part in parts):
        yield "an empty text"


def _content(content: object) -> Iterator[str]:
    if isinstance(content, str):
        return
    yield from _listed(content, "content of no known form")
    if isinstance(content, list) and not all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content):
        yield "content without a type"


def _listed(value: object, otherwise: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield otherwise
    elif not value:
        yield "an empty list"


def _named(value: Message, key: str) -> Iterator[str]:
    if not (isinstance(value.get(key), str) and value[key]):
        yield f"no {key}"


def _text(value: Message, key: str) -> Iterator[str]:
    if not isinstance(value.get(key), str):
        yield f"{key} that is no text"


def _marks(value: object) -> int:
    """Cache marks of an item, its content and what that contains; not of what tools were given or brought back."""
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, dict):
        return 0
    return (value.get(CACHE_MARK) is not None) + _marks(value.get("content"))


def _print(value: object) -> str:
    try:
        text = canonical(value)
    except ValueError:  # nesting too deep
        text = ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
