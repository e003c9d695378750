"""What the tests of what must hold share: sessions that outgrow a window, other spellings of them, raw doors."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.boot import opened
from proxy.exchange import exchange
from proxy.server import ServerBounds
from proxy.server.lifecycle import Server as Door
from proxy.settings import Settings
from tests.e2e.replay import RECORDINGS, Ask, Recording
from tests.e2e.stand import Outcome, Stage
from tests.store.servers import Server

Item = dict[str, Any]

#: The session that stands for its API where one is enough.
_OF = {"chat": "openai-agents", "responses": "openai-agents", "messages": "claude-code-2.1_title"}
FIELD = {"chat": "messages", "responses": "input", "messages": "messages"}


def recording(name: str, api: str = "") -> Recording:
    """The recording whose name begins so."""
    return next(one for one in RECORDINGS if one.name.startswith(name) and api in (one.api, ""))


def session(api: str) -> list[Ask]:
    """The requests of a session of this API, without those beside it."""
    return list(recording(_OF[api], api).asks(linear=True))


async def packed(stage: Stage, asks: Sequence[Ask], key: str) -> tuple[int, Outcome]:
    """Send requests until one is packed; which one, and what came of it."""
    for at, ask in enumerate(asks):
        found = await stage.outcome(ask, key)
        assert not found.seen.wrong, found.seen.wrong
        if found.reply.action == "pressure":
            return at, found
    raise AssertionError("it never outgrew its window")


def with_items(ask: Ask, change: Callable[[list[Item]], list[Item]]) -> Ask:
    """The same request with another history."""
    field = FIELD[ask.api]
    return replace(ask, body={**ask.body, field: change(ask.body[field])})


# --- other spellings ------------------------------------------------------------------------------------


def respelt(ask: Ask) -> Ask:
    """As a client may write the same history next time: new ids, no reasoning, arguments anew, text otherwise."""

    def again(items: list[Item]) -> list[Item]:
        found = [_SPELLINGS[ask.api](one) for one in items if one.get("type") != "reasoning"]
        return _marked(found) if ask.api == "messages" else found

    return with_items(ask, again)


def _chat(item: Item) -> Item:
    found = {key: value for key, value in item.items() if not key.startswith("reasoning")}
    if calls := found.get("tool_calls"):
        again = [{**call, "function": {**call["function"], "arguments": _again(call)}} for call in calls]
        return {**found, "tool_calls": again}
    if isinstance(found.get("content"), str):
        folded = "<think>So.</think>" if found["role"] == "assistant" else ""
        return {**found, "content": [{"type": "text", "text": f"{folded}{found['content']}\n"}]}
    return found


def _again(call: Item) -> str:
    return _turned(call["function"]["arguments"])


def _turned(arguments: str) -> str:
    """The same arguments in another order, spaced otherwise."""
    return json.dumps(dict(reversed(json.loads(arguments).items())), indent=1)


def _responses(item: Item) -> Item:
    found = {key: value for key, value in item.items() if key not in ("status", "id")}
    found["id"] = f"new_{zlib.crc32(json.dumps(item).encode()):x}"
    if "arguments" in found:
        found["arguments"] = _turned(found["arguments"])
    if isinstance(found.get("content"), str):
        found["content"] = [{"type": "input_text", "text": found["content"]}]
    elif isinstance(found.get("content"), list):
        found["content"] = [{**part, "annotations": [], "text": f" {part['text']}"} for part in found["content"]]
    return found


def _marked(items: list[Item]) -> list[Item]:
    """A cache mark where none was: on the task, and on the first step's results."""
    found = list(items)
    for at, item in enumerate(items[:3]):
        if item["role"] == "user":
            *blocks, last = item["content"]
            found[at] = {**item, "content": [*blocks, {**last, "cache_control": {"type": "ephemeral"}}]}
    return found


def _messages(item: Item) -> Item:
    """Every mark gone, no thinking, keys of blocks turned round."""
    content = item["content"]
    if isinstance(content, str):
        return {**item, "content": [{"type": "text", "text": content}]}
    kept = [block for block in content if "thinking" not in block["type"]]
    turned = [dict(reversed([one for one in block.items() if one[0] != "cache_control"])) for block in kept]
    return {**item, "content": turned}


_SPELLINGS = {"chat": _chat, "responses": _responses, "messages": _messages}


def edited(ask: Ask) -> Ask:
    """One character more in the second thing the user said; in `chat` the first item is system text."""

    def change(items: list[Item]) -> list[Item]:
        at = [
            at for at, one in enumerate(items) if one.get("role") == "user" and '"tool_result"' not in json.dumps(one)
        ]
        one = items[at[1]]
        content = one["content"]
        if isinstance(content, str):
            said: str | list[Item] = content + "!"
        else:
            said = [{**content[0], "text": content[0]["text"] + "!"}, *content[1:]]
        return [*items[: at[1]], {**one, "content": said}, *items[at[1] + 1 :]]

    return with_items(ask, change)


def spellings(ask: Ask, count: int) -> Iterator[bytes]:
    """The same body with its keys in other orders, as Codex writes it on every attempt."""
    for fields in itertools.islice(itertools.permutations(ask.body.items()), count):
        yield json.dumps(dict(fields), ensure_ascii=False, separators=(",", ":")).encode()


# --- streams --------------------------------------------------------------------------------------------


def events(body: bytes) -> list[Item]:
    """The JSON values of an event stream."""
    lines = (line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: {"))
    return [json.loads(line) for line in lines]


def found_under(key: str, value: object) -> Iterator[Any]:
    """All values of a key, at any depth."""
    for inner in value if isinstance(value, list) else ():
        yield from found_under(key, inner)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name == key:
            yield inner
        yield from found_under(key, inner)


# --- doors ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def door(base_url: str, store: Server) -> AsyncIterator[int]:
    """The whole of Carryon before this upstream, with no window; gives its port."""
    given = {
        "upstreams": {"up": base_url},
        "redis": {"url": store.url, "durability": "memory", "timeout": "2s"},
        "secret": "a secret of at least thirty-two characters",
    }
    async with opened(Settings.model_validate(given)) as house:
        found = Door(partial(exchange, house), ServerBounds(linger=0.2), on_fault=lambda: house.fault("the door"))
        try:
            yield await found.listen()
        finally:
            await found.close()
        assert house.internal_faults == 0
