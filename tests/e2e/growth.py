"""How a client's own items are made into those of later turns: other words, other ids, the client's spelling."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]

_WORDS = """
ledger invoice round total folder branch module handler request answer column record deploy review result number
""".split()  # noqa: SIM905 - words read better than a column of quotes
_PLACEHOLDER = re.compile(r"\[text of (\d+) characters(?: written by the client)?, replaced; id (\w+)\]")
#: aider's newest question carries a suffix of 853 characters that is gone next turn: what is known of the three.
_ASKED = {"7ccef813": "hello first", "06afb363": "second question", "e7b4ada3": "third question"}
#: Length of what a client may not read and must send back.
_SEALED = 160


def filler(length: int, seed: str) -> str:
    """So many characters of words, the same for the same seed and different for every other."""
    at = sum(seed.encode())
    words = [f"{seed}:"]
    while sum(map(len, words)) + len(words) < length + 1:
        at = (at * 31 + 7) % 9_973
        words.append(_WORDS[at % len(_WORDS)])
    return " ".join(words)[: max(length, len(seed) + 1)]


def _whole(match: re.Match[str]) -> str:
    length, name = int(match[1]), match[2]
    asked = _ASKED.get(name)
    return filler(length, name) if asked is None else asked + filler(length - len(asked), "suffix")


def blown_up(value: Any) -> Any:
    """The same with every text at its full length."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(_whole, value)
    if isinstance(value, list):
        return [blown_up(one) for one in value]
    return {key: blown_up(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A client's own step with tools (perhaps none), its model's answer and its user's question."""

    step: list[Item]
    said: list[Item]
    asked: list[Item]


def template(api: str, items: Sequence[Item], elsewhere: Sequence[Item]) -> Template:
    """The newest of each in a history; where it has none of an answer or a step, in another of the same client."""
    step = _step(api, items) or _step(api, elsewhere)
    said = _answer(items) or _answer(elsewhere) or [_NOTHING_SAID[api]]
    asked = next(one for one in reversed(items) if one.get("role") == "user" and not _works(one))
    return Template(step=step, said=said, asked=[asked])


_NOTHING_SAID: dict[str, Item] = {
    "chat": {"role": "assistant", "content": ""},
    "responses": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]},
    "messages": {"role": "assistant", "content": [{"type": "text", "text": ""}]},
}


def _works(item: Item) -> bool:
    """Whether it calls tools or has their results."""
    content = item.get("content")
    kinds = [part["type"] for part in content if "type" in part] if isinstance(content, list) else []
    return bool(item.get("tool_calls")) or "tool_use" in kinds or "tool_result" in kinds


def _step(api: str, items: Sequence[Item]) -> list[Item]:
    at = next((at for at, one in enumerate(items) if _works(one) or one.get("type") == "function_call"), None)
    if at is None:
        return []
    return list(items[_with_its_reasoning(items, at) : at + 2]) if api == "responses" else list(items[at : at + 2])


def _answer(items: Sequence[Item]) -> list[Item]:
    answers = [at for at, one in enumerate(items) if one.get("role") == "assistant" and not _works(one)]
    return list(items[_with_its_reasoning(items, answers[-1]) : answers[-1] + 1]) if answers else []


def _with_its_reasoning(items: Sequence[Item], at: int) -> int:
    return at - 1 if at and items[at - 1].get("type") == "reasoning" else at


def later(items: Sequence[Item], turn: int, length: int, owner: str) -> list[Item]:
    """The same items of a later turn."""
    return [_later(one, turn, length, f"{owner} {_who(one)}") for one in items]


def _who(item: Item) -> str:
    return str(item.get("role") or item["type"])


def _later(item: Item, turn: int, length: int, owner: str) -> Item:
    found = copy.deepcopy(item)
    text = filler(length, owner)
    for call in found.get("tool_calls") or ():
        call["id"] = _id("call", turn)
        call["function"]["arguments"] = _arguments(call["function"]["arguments"], turn)
    if "tool_call_id" in found:
        found["tool_call_id"] = _id("call", turn)
    if "call_id" in found:
        found["call_id"] = _id("call", turn)
    if "arguments" in found:
        found["arguments"] = _arguments(found["arguments"], turn)
    if "output" in found:
        found["output"] = text
    if "encrypted_content" in found:
        found["encrypted_content"] = _sealed(owner)
    if "id" in found:
        found["id"] = f"{found['id'].partition('_')[0]}_{owner.replace(' ', '_')}"
    if isinstance(found.get("content"), list):
        found["content"] = _blocks(found["content"], turn, text, owner)
    elif "content" in found and found.get("type") != "reasoning" and not found.get("tool_calls"):
        found["content"] = text
    return found


def _blocks(blocks: Sequence[Item], turn: int, text: str, owner: str) -> list[Item]:
    """The blocks of a message: one text becomes the long one where there is no result to be long."""
    results = [block for block in blocks if block["type"] == "tool_result"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    found: list[Item] = []
    for block in blocks:
        at = (results if block in results else calls).index(block) if block in results or block in calls else 0
        found.append(_block(block, turn, at, f"{owner} {at}", text if not results and not calls else "Go on."))
        if block in results:
            found[-1]["content"] = _result(block["content"], filler(len(text) // len(results), f"{owner} {at}"))
    return found if results or calls else [one for one in found if one["type"] not in _TEXT] + _one_text(found)


_TEXT = ("text", "input_text", "output_text")


def _one_text(found: Sequence[Item]) -> list[Item]:
    return [one for one in found if one["type"] in _TEXT][:1]


def _result(content: str | list[Item], text: str) -> str | list[Item]:
    return text if isinstance(content, str) else [{**content[0], "text": text}]


def _block(block: Item, turn: int, at: int, owner: str, text: str) -> Item:
    changes: dict[str, Item] = {
        "tool_use": {"id": _id(f"toolu_{at}", turn), "input": {**block.get("input", {}), "note": f"turn {turn}"}},
        "tool_result": {"tool_use_id": _id(f"toolu_{at}", turn)},
        "thinking": {"thinking": f"Thinking of turn {turn}.", "signature": _sealed(owner)},
        "redacted_thinking": {"data": _sealed(owner)},
    }
    return {**block, **changes.get(block["type"], {"text": text})}


def _id(kind: str, turn: int) -> str:
    return f"{kind}_9{turn:03}"


def _sealed(owner: str) -> str:
    return filler(_SEALED, owner).replace(" ", "+").replace(":", "/")


def _arguments(given: str, turn: int) -> str:
    """Other arguments, spaced as the client spaces them."""
    arguments = {**json.loads(given), "note": f"turn {turn}"}
    return json.dumps(arguments, separators=(", ", ": ") if ": " in given else (",", ":"))
