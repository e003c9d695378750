"""Bodies no client should send: named ones, one for every field and type, and generated ones; for any dialect.

All begin from one conversation with everything in it that a body of its dialect may hold, large enough to be packed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "CHAT",
    "CONVERSATION",
    "WINDOW",
    "WORDS",
    "Corpus",
    "Json",
    "has_role",
    "odd",
    "put",
    "reading",
    "spelt",
]

#: The window whose first half the conversation outgrows: a summary of it still fits.
WINDOW = 19_000
WORDS = "invoice total amount currency round decimal ledger customer account balance "

Json = dict[str, Any]
Path = tuple[str | int, ...]


def _step(number: int) -> list[Json]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": '{"path":"a.py"}'}}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {WORDS * 120}"},
        {"role": "user", "content": f"Go on with {number}. {WORDS * 120}"},
    ]


CONVERSATION: Json = {
    "model": "hostile-1",
    "messages": [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": [{"type": "text", "text": "Mend it."}], "name": "one"},
        *(message for number in range(1, 5) for message in _step(number)),
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "refusal": "no",
            "function_call": {"name": "old", "arguments": "{}"},
        },
        {"role": "function", "name": "old", "content": "done"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this.", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
            ],
        },
    ],
    "stream": False,
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "functions": [{"name": "old"}],
    "response_format": {"type": "text"},
    "max_tokens": 10,
    "max_completion_tokens": 10,
    "temperature": 1.0,
    "stop": ["x"],
    "n": 1,
    "stream_options": {"include_usage": True},
    "metadata": {"user_id": '{"session_id":"s"}', "session_id": "s"},
    "client_metadata": {"thread_id": "t"},
    "user": "u",
    "session_id": "s",
    "prompt_cache_key": "k",
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "store": True,
    "reasoning_effort": "low",
}
#: Top-level keys that only some bodies have: each changes what may be done with them.
_ABSENT = ("conversation", "previous_response_id", "context_management", "truncation", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """One dialect's bodies. `field` holds the items of `conversation`; the pieces are bytes as `spelt` spells them.

    `first` is the index of the user's first item, `call` that of the first call, before its result; `alike` are
    items that only repeat others. `role` is a role with what stands around it, `result` where a result names its
    call, `arguments` what a call was given. `keys` are keys of an item. `parts`, `handed`, `calls` and `one` of
    them lie at these paths. `is_item` tells what is an item; `own` are named bodies that only this dialect has,
    `untouched` those that no rule lets Carryon change or send again.
    """

    name: str
    path: bytes
    field: str
    conversation: Json
    first: int
    call: int
    alike: range
    role: tuple[bytes, bytes, bytes]
    result: bytes
    arguments: bytes
    keys: tuple[str, ...]
    parts: Path
    handed: Path
    calls: Path
    one: Path
    is_item: Callable[[Json], bool]
    own: dict[str, bytes] = field(default_factory=dict)
    untouched: frozenset[str] = frozenset()

    @property
    def limit(self) -> bytes:
        """The limit of output as the conversation spells it."""
        return b'"max_output_tokens": 10' if self.name == "responses" else b'"max_tokens": 10'

    def named(self) -> dict[str, bytes]:
        """Bodies spoilt as bodies of every dialect can be."""
        return dict(_named(self))

    def mistyped(self) -> list[tuple[str, bytes]]:
        """The conversation with one field after the other replaced by every type of value."""
        return list(_mistyped(self))

    def mutated(self) -> st.SearchStrategy[bytes]:
        """The conversation, changed in a few places."""
        return _mutated(self)


#: One of each JSON type, and the odd ones among them, as spelt.
VALUES = ("null", "true", "-1", "1e400", "1.5", '""', '"x"', '"\\ud800"', "[]", "[[]]", "[null]", "{}", '{"type":[]}')
_HOLE = "\u2603hole"


def spelt(value: object) -> bytes:
    """JSON as this client spells it."""
    return json.dumps(value, ensure_ascii=False).encode()


def _filled(value: object, spelling: str) -> bytes:
    return spelt(value).replace(json.dumps(_HOLE, ensure_ascii=False).encode(), spelling.encode())


def _places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a value, itself not."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in found:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def put(body: Json, path: tuple[str | int, ...], value: object) -> Json:
    """A body with another value at one place."""
    made = copy.deepcopy(body)
    at: Any = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def odd(body: Json, path: Path) -> Iterator[tuple[str, bytes]]:
    """A body with every type of value at one place."""
    whole = put(body, path, _HOLE)
    yield from ((value, _filled(whole, value)) for value in VALUES)


def _mistyped(corpus: Corpus) -> Iterator[tuple[str, bytes]]:
    alike = {(at,) for at in corpus.alike}
    places = [path for path in _places(corpus.conversation) if path[:1] != (corpus.field,) or path[1:2] not in alike]
    for path in [*places, *((name,) for name in _ABSENT)]:
        named = ".".join(map(str, path))
        yield from ((f"{named} = {value}", body) for value, body in odd(corpus.conversation, path))


def _cuts(corpus: Corpus, whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut after every byte that begins or ends something, and in the middle of a character."""
    marks = (b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"model", corpus.field.encode(), b"role")
    places = {whole.index(mark) + len(mark) for mark in marks if mark in whole}
    places |= {len(whole) - back for back in range(1, 6)} | {whole.rindex(mark) for mark in marks if mark in whole}
    yield from ((f"cut at {at}", whole[:at]) for at in sorted(places))
    yield "cut in a character", spelt({"model": "m", corpus.field: [{"role": "user", "content": "é"}]})[:-5]


def _at(body: Json, path: Path) -> Any:
    found: Any = body
    for key in path:
        found = found[key]
    return found


def _named(corpus: Corpus) -> Iterator[tuple[str, bytes]]:
    body, items = corpus.conversation, corpus.conversation[corpus.field]
    whole, listed = spelt(body), corpus.field.encode()
    inner = whole[1:-1]
    first = spelt(items[corpus.first])
    yield from (("empty", b""), ("space", b" \r\n\t"), ("no JSON", b"not json"), ("a form", b"model=x&%s=y" % listed))
    yield from ((f"top level {value}", value.encode()) for value in VALUES)
    yield from _cuts(corpus, whole)
    yield from (
        (f"after the end: {after!r}", whole + after) for after in (b"x", b"\0", b"{}", b"}", b",", whole, b"//")
    )
    yield "white space around", b"\r\n\t " + whole + b" \n\r\t"
    yield "white space inside", json.dumps(body, indent="\t\r\n ", separators=(" ,\r", "\t:\n")).encode()
    yield from (
        ("vertical tab", b"\x0b" + whole),
        ("no-break space", b"\xc2\xa0" + whole),
        ("form feed", whole + b"\f"),
    )
    yield "a NUL between", whole.replace(b", ", b",\0", 1)
    yield "a NUL in a text", whole.replace(b"Mend it.", b"Mend\0it.")
    yield "a NUL escaped", whole.replace(b"Mend it.", b"Mend\\u0000it.")
    yield "a control character in a text", whole.replace(b"Mend it.", b"Mend\nit.")
    yield "BOM", b"\xef\xbb\xbf" + whole
    for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-7", "latin-1"):
        yield coding, json.dumps({**body, "user": "é"}, ensure_ascii=False).encode(coding)
    for name, odd in {
        "lone high surrogate": b"\\ud800",
        "lone low surrogate": b"\\udc00",
        "surrogates in wrong order": b"\\udc00\\ud800",
        "a surrogate pair": b"\\ud83d\\ude00",
        "cut escape": b"\\ud8",
        "unknown escape": b"\\x41",
        "invalid UTF-8": b"\xff\xfe",
        "overlong UTF-8": b"\xc0\xaf",
        "a surrogate in UTF-8": b"\xed\xa0\x80",
        "beyond Unicode": b"\xf4\x90\x80\x80",
        "cut UTF-8": b"\xe2\x82",
        "a non-character": b"\xef\xbf\xbf",
        "a control character": b"\x01",
        "a line break": b"\n",
        "a NUL": b"\0",
        "a delete": b"\x7f",
    }.items():
        yield f"{name} in a text", whole.replace(b"Mend it.", odd)
        yield f"{name} beside", whole.replace(b'"user": "u"', b'"user": "%s"' % odd)
        yield f"{name} in a key", whole.replace(b'"temperature"', b'"%s"' % odd)
        yield f"{name} in the model", whole.replace(b"hostile-1", odd)
        yield f"{name} in a role", whole.replace(b"".join(corpus.role), corpus.role[0] + odd + corpus.role[2])
        yield f"{name} in a call's id", whole.replace(b'"c2"', b'"%s"' % odd)
    for key in body:
        again = spelt({key: body[key]})[1:-1]
        yield f"{key} twice", b"{" + inner + b", " + again + b"}"
    yield "model twice, another", b"{" + inner + b', "model": "hostile-2"}'
    yield "model twice, once escaped", b"{" + inner + b', "mod\\u0065l": "hostile-2"}'
    escaped = b'"\\u%04x%s"' % (listed[0], listed[1:])
    yield "items only under an escaped key", whole.replace(b'"%s"' % listed, escaped)
    for key in corpus.keys:
        other = b'"%s": "assistant"' % key.encode()
        yield f"{key} twice in a message", whole.replace(first, first[:-1] + b", " + other + b"," + other + b"}")
    for number in (
        b"1e400",
        b"NaN",
        b"-Infinity",
        b"+1",
        b"01",
        b"1.",
        b".5",
        b"-",
        b"1e",
        b"0x1",
        b"1_0",
        b"tru",
        b"nul",
    ):
        name = number.decode()
        yield f"{name} number beside", whole.replace(b'"temperature": 1.0', b'"temperature": %s' % number)
        yield f"{name} number in a message", whole.replace(b'"name": "one"', b'"name": %s' % number)
        yield (
            f"{name} number in a result",
            whole.replace(corpus.result, b'"n": %s, ' % number + corpus.result),
        )
        yield f"{name} number as limit", whole.replace(corpus.limit, corpus.limit.replace(b"10", number))
    for place in (b'"temperature": 1.0', corpus.limit, b'"n": 1'):
        yield f"10^5 digits for {place[1:6]!r}", whole.replace(place, place.split(b":")[0] + b":" + b"9" * 100_000)
    yield "10^5 digits in arguments", whole.replace(corpus.arguments, b"9" * 100_000)
    yield "10^5 digits after the point", whole.replace(b'"temperature": 1.0', b'"temperature": 1.%s' % (b"9" * 100_000))
    for depth in (900, 1_100, 100_000):
        for opens, closes in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = opens * depth + (b"1" if closes == b"}" else b"") + closes * depth
            yield f"{depth} deep {opens!r} alone", deep
            yield f"{depth} deep {opens!r} beside", whole.replace(b'"temperature": 1.0', b'"temperature": ' + deep)
            yield f"{depth} deep {opens!r} in content", whole.replace(spelt(items[corpus.first]["content"]), deep)
            yield f"{depth} deep {opens!r} as a message", whole.replace(first, deep)
            yield f"{depth} deep {opens!r} unclosed", opens * depth
    deep = (b"[" * 50_000 + b"]" * 50_000).decode()
    yield "deep arguments", spelt(put(body, corpus.handed, deep))
    yield "many keys", b"{" + inner + b"".join(b', "k%d": 1' % number for number in range(20_000)) + b"}"
    yield "many messages", spelt({**body, corpus.field: [{"role": "user", "content": "a"}] * 20_000})
    yield "many parts", spelt(put(body, corpus.parts, items[corpus.first]["content"] * 20_000))
    yield (
        "many calls",
        spelt(put(body, corpus.calls, [*_at(body, corpus.calls), *[_at(body, corpus.one)] * 5_000])),
    )
    yield "no messages", spelt({**body, corpus.field: []})
    yield "only system text", spelt({**body, corpus.field: items[:1] * 3})
    yield "a result without its call", spelt({**body, corpus.field: items[corpus.call + 1 :]})
    yield "a call without its result", spelt({**body, corpus.field: items[: corpus.call + 1]})
    yield "a model with a line break", whole.replace(b"hostile-1", b"a\\nb\\r\\n: c")
    yield "a model of 10^5 characters", whole.replace(b"hostile-1", b"m" * 100_000)
    yield "a model with braces", whole.replace(b"hostile-1", b"{}:{a}*?[")
    yield "a megabyte of backslashes", whole.replace(b"Mend it.", b"\\\\" * 500_000)
    yield "a megabyte of one letter", whole.replace(b"Mend it.", b"a" * 1_000_000)
    yield "a text of no spaces", whole.replace(b"Mend it.", "\u0e01\u0e33".encode() * 100_000)
    yield "a surrogate beside a long text", whole.replace(b"Mend it.", b"\\ud800" + b"a" * 300_000)


class _Pairs(list[tuple[str, object]]):
    """An object as read: keys may repeat."""


def _refused(text: str) -> object:
    raise ValueError(text)


def reading(corpus: Corpus, body: bytes) -> tuple[list[tuple[str, object]], list[object]] | None:
    """What a plain reader of JSON makes of a body: what stands beside the items, and the items.

    None where a body is not for Carryon to touch: no JSON, no object, a key named twice, no model, no list of items.
    Nesting too deep for this reader is a RecursionError.
    """
    try:
        top = json.loads(
            body.decode(),
            object_pairs_hook=_Pairs,
            parse_int=str,
            parse_float=str,
            parse_constant=_refused,
        )
    except ValueError:
        return None
    if not isinstance(top, _Pairs) or len({key for key, _ in top}) < len(top):
        return None
    fields = dict(top)
    model, listed = fields.get("model"), fields.get(corpus.field)
    if not isinstance(model, str) or not model or not model.isprintable() or not isinstance(listed, list):
        return None
    if not all(isinstance(item, _Pairs) and corpus.is_item(dict(item)) for item in listed):
        return None
    return [pair for pair in top if pair[0] != corpus.field], listed


def has_role(item: Json) -> bool:
    """Whether this is a message."""
    return isinstance(item.get("role"), str) and bool(item["role"])


_SCALARS = st.sampled_from([*VALUES, "10", '"é\\ud800"', '"' + "w " * 300 + '"', "9" * 400, '{"a":1,"a":2}'])


@st.composite
def _mutated(draw: st.DrawFn, corpus: Corpus) -> bytes:
    """Values replaced, moved, dropped, repeated; then perhaps its bytes."""
    body, holes = copy.deepcopy(corpus.conversation), []
    everywhere = list(_places(corpus.conversation))
    #: Mostly inside the items, below their roles: there a body stays a conversation.
    inside = [path for path in everywhere if len(path) > 2 and path[0] == corpus.field and path[2] != "role"]
    places = st.one_of(st.sampled_from(inside), st.sampled_from(everywhere))
    for number in range(draw(st.integers(1, 3))):
        path = draw(places)
        change = draw(st.sampled_from(["replace", "replace", "drop", "repeat", "swap"]))
        try:
            at: Any = body
            for key in path[:-1]:
                at = at[key]
            if change == "drop":
                del at[path[-1]]
            elif change == "repeat" and isinstance(at, list):
                at.insert(path[-1], copy.deepcopy(at[path[-1]]))
            elif change == "swap" and isinstance(at, list):
                at[0], at[path[-1]] = at[path[-1]], at[0]
            else:
                at[path[-1]] = f"{_HOLE}{number}"
                holes.append((f"{_HOLE}{number}", draw(_SCALARS)))
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    raw = spelt(body)
    for hole, value in holes:
        raw = raw.replace(json.dumps(hole, ensure_ascii=False).encode(), value.encode())
    return draw(_bytewise(raw))


@st.composite
def _bytewise(draw: st.DrawFn, raw: bytes) -> bytes:
    kind = draw(st.sampled_from([*["as it is"] * 6, "cut", "insert", "flip"]))
    at = draw(st.integers(0, len(raw)))
    if kind == "cut":
        return raw[:at]
    if kind == "insert":
        return raw[:at] + draw(st.binary(min_size=1, max_size=6)) + raw[at:]
    if kind == "flip":
        return raw[:at] + draw(st.binary(min_size=1, max_size=1)) + raw[at + 1 :]
    return raw


CHAT = Corpus(
    name="chat",
    path=b"/v1/chat/completions",
    field="messages",
    conversation=CONVERSATION,
    first=1,
    call=2,
    alike=range(5, 11),
    role=(b'"', b"function", b'", "name"'),
    result=b'"tool_call_id": "c1"',
    arguments=b'{\\"path\\":\\"a.py\\"}',
    keys=("role", "content", "tool_call_id", "tool_calls"),
    parts=("messages", 1, "content"),
    handed=("messages", 2, "tool_calls", 0, "function", "arguments"),
    calls=("messages", 2, "tool_calls"),
    one=("messages", 2, "tool_calls", 0),
    is_item=has_role,
)
