"""A streamed reply, read when it has ended: its events, and the value the same reply has where it is not streamed.

A stream that breaks off before it says why it ended, or that holds an error, is no reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from proxy.core.hold_form import Form, form_of
from proxy.core.overflow_frame import has_error_marker
from proxy.core.sse import Frame, FrameParser
from proxy.dialects.parts import Message, loads, mapping, parse

__all__ = ["Gather", "chat", "messages", "responses", "whole"]

#: Makes one value of the events of a reply, by name; an empty one where they do not come to an end.
Gather = Callable[[Sequence[tuple[str, Message]]], Message]

#: More are no summary; reading a million takes seconds.
_MOST_EVENTS = 1 << 16
_PIECE = 1 << 16
_ENDS = ("response.completed", "response.incomplete", "response.done")


def whole(body: bytes, gather: Gather) -> Message:
    """The value of a reply whose first bytes tell whether it is streamed; empty where there is none."""
    if form_of(body, None, ended=True) is not Form.EVENTS:
        return loads(body)
    events = _events(body)
    return gather(events) if events is not None else {}


def chat(events: Sequence[tuple[str, Message]]) -> Message:
    """Chunks of the first choice, put together."""
    texts: list[object] = []
    calls: list[Message] = []
    reply: dict[str, object] = {}
    finish: object = None
    for _, chunk in events:
        reply |= {key: value for key in ("model", "usage") if (value := chunk.get(key))}
        for choice in _objects(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            delta = mapping(choice.get("delta") or choice.get("message"))
            texts.append(delta.get("content"))
            calls += _objects(delta.get("tool_calls")) + _objects([delta.get("function_call")])
            finish = choice.get("finish_reason") or finish
    if not finish:
        return {}
    message = {"role": "assistant", "content": _joined(texts), "tool_calls": calls}
    return {**reply, "choices": [{"message": message, "finish_reason": finish}]}


def responses(events: Sequence[tuple[str, Message]]) -> Message:
    """The response that the last event carries; its output from the events before, where it leaves that out."""
    items: list[object] = []
    ended: Message = {}
    for name, event in events:
        if name == "response.output_item.done":
            items.append(event.get("item"))
        elif name in _ENDS:
            ended = mapping(event.get("response"))
    return {**ended, "output": ended.get("output") or items} if ended else {}


def messages(events: Sequence[tuple[str, Message]]) -> Message:
    """The message that the first event began, with its blocks and the reason that the last ones give."""
    begun: Message = {}
    usage: dict[str, object] = {}
    reason: object = None
    blocks: dict[object, dict[str, object]] = {}
    texts: dict[object, list[object]] = {}
    for name, event in events:
        at, delta = str(event.get("index")), mapping(event.get("delta"))
        if name == "message_start":
            begun = mapping(event.get("message"))
            usage |= _told(begun.get("usage"))
        elif name == "content_block_start":
            blocks[at] = dict(mapping(event.get("content_block")))
            texts[at] = [blocks[at].get("text")]
        elif name == "content_block_delta":
            texts.setdefault(at, []).append(delta.get("text"))
        elif name == "message_delta":
            reason = delta.get("stop_reason") or reason
            usage |= _told(event.get("usage"))
    if not reason:
        return {}
    content = [{**block, "text": _joined(texts[at])} if "text" in block else block for at, block in blocks.items()]
    return {**begun, "content": content, "stop_reason": reason, "usage": usage}


def _events(body: bytes) -> list[tuple[str, Message]] | None:
    """All of them, by name; None where one is an error, where one is damaged, or where there are too many."""
    found: list[tuple[str, Message]] = []
    for count, frame in enumerate(_frames(body)):
        data = (frame.data or "").strip()
        read = parse(data)
        if count >= _MOST_EVENTS or has_error_marker(read, frame.event) or (read is None and data.startswith("{")):
            return None
        value = mapping(read)
        named = value.get("type")
        found.append((named if isinstance(named, str) else frame.event, value))
    return found


def _frames(body: bytes) -> Iterator[Frame]:
    parser = FrameParser()
    pieces = (parser.feed(body[at : at + _PIECE]) for at in range(0, len(body), _PIECE))
    yield from chain.from_iterable(pieces)
    yield from parser.end()


def _objects(value: object) -> list[Message]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _joined(texts: Iterable[object]) -> str:
    """The texts in a row; some servers give a delta as a list of parts."""
    return "".join(text for found in texts for text in _texts(found))


def _texts(value: object) -> Iterator[str]:
    for part in value if isinstance(value, list) else [value]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _told(usage: object) -> Message:
    return {key: value for key, value in mapping(usage).items() if value is not None}
