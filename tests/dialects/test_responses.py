"""The `responses` dialect: what its items mean, which bytes stay, and what a summary request keeps."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.transcript import Facts, Transcript
from proxy.dialects import Call, Completion, Dialect, Result, Said, Usage
from proxy.dialects.responses import RESPONSES
from tests.dialects.test_chat_digest import JSON
from tests.transcripts import CAPTURES, Message, spelt


def _recorded() -> dict[str, list[Message]]:
    """Every recorded body with a list of items, by capture."""
    found: dict[str, list[Message]] = {}
    for path in sorted(CAPTURES.glob("*.json")):
        for request in json.loads(path.read_text())["requests"]:
            if isinstance(request["body"], dict) and isinstance(request["body"].get("input"), list):
                found.setdefault(path.stem, []).append(request["body"])
    return found


RECORDED = _recorded()


def split(items: object, **more: object) -> Transcript:
    """A split body of these items."""
    found = RESPONSES.split(spelt({"model": "m", "input": items, **more}))
    assert found is not None
    return found


def facts(item: object) -> Facts:
    """What is known of an item."""
    found = RESPONSES.facts(spelt(item))
    assert found is not None
    return found


def said(role: str, text: str, **more: object) -> Message:
    """A message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}


def call(named: str, **more: object) -> Message:
    """A function call."""
    return {"type": "function_call", "call_id": named, "name": "read", "arguments": '{"path": "a.py"}', **more}


def output(named: str, text: object = "done", **more: object) -> Message:
    """Its output."""
    return {"type": "function_call_output", "call_id": named, "output": text, **more}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 60}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_bodies_are_rendered_as_they_came(name: str) -> None:
    """Every byte, and the leading system text is no item."""
    for one in RECORDED[name]:
        raw = spelt(one)
        found = RESPONSES.split(raw)
        assert found is not None
        assert RESPONSES.render(found, found.items) == raw
        assert all(item["role"] == "developer" for item in one["input"][: len(found.envelope.leading)])
        assert RESPONSES.invalid(found.items) is None


@pytest.mark.parametrize("name", ["codex-0.171.0_responses_tool_and_resume", "openai-agents-0.24.0_responses_session"])
def test_the_next_turn_of_a_real_client_begins_with_this_one(name: str) -> None:
    """The digests of each request are a prefix of the next one's."""
    digests = [found.digests for one in RECORDED[name] if (found := RESPONSES.split(spelt(one)))]
    assert len(digests) > 2
    for before, after in pairwise(digests):
        assert after[: len(before)] == before


def test_text_alone_is_no_list_of_items() -> None:
    """A string as input is one message: there is nothing to pack."""
    assert RESPONSES.split(b'{"model":"m","input":"hi"}') is None


@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_approval_request", "id": "1", "name": "f"},
        {"type": "local_shell_call_output", "id": "1", "output": "x"},
        {"type": "function_call", "call_id": "1", "id": "a", "name": "f", "arguments": "{}"},
    ],
    ids=lambda item: item["type"],
)
def test_what_pairs_an_item_is_part_of_it(item: dict[str, object]) -> None:
    """Whatever field it stands in; the item's own id is not, where another pairs it."""
    pairing = "call_id" if "call_id" in item else "id"
    digests = [RESPONSES.facts(json.dumps({**item, pairing: to}).encode()) for to in ("1", "2")]
    assert len({found.digest for found in digests if found}) == 2
    if pairing != "id":
        anew = RESPONSES.facts(json.dumps({**item, "id": "b"}).encode())
        assert anew is not None
        assert digests[0] is not None
        assert anew.digest == digests[0].digest


@pytest.mark.parametrize(
    ("item", "role", "opens", "answers"),
    [
        (said("user", "a"), "user", (), ()),
        ({"role": "user", "content": "a"}, "user", (), ()),
        (call("1"), "assistant", ("1",), ()),
        (output("1"), "tool", (), ("1",)),
        ({"type": "custom_tool_call", "call_id": "1", "name": "f", "input": "x"}, "assistant", ("1",), ()),
        ({"type": "custom_tool_call_output", "call_id": "1", "output": "x"}, "tool", (), ("1",)),
        ({"type": "local_shell_call", "call_id": "1", "action": {}}, "assistant", ("1",), ()),
        ({"type": "local_shell_call_output", "id": "1", "output": "x"}, "tool", (), ("1",)),
        ({"type": "computer_call", "call_id": "1", "action": {}}, "assistant", ("1",), ()),
        ({"type": "computer_call_output", "call_id": "1", "output": {}}, "tool", (), ("1",)),
        ({"type": "apply_patch_call", "call_id": "1", "operation": {}}, "assistant", ("1",), ()),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, "assistant", (), ()),
        ({"type": "mcp_call", "id": "mcp_1", "name": "f", "output": "x"}, "assistant", (), ()),
        ({"type": "mcp_approval_request", "id": "1", "name": "f"}, "assistant", ("1",), ()),
        ({"type": "mcp_approval_response", "approval_request_id": "1", "approve": True}, "tool", (), ("1",)),
        (REASONING, "assistant", (), ()),
        ({"type": "compaction", "encrypted_content": "x"}, "assistant", (), ()),
        ({"type": "heard_of_by_nobody"}, "assistant", (), ()),
    ],
)
def test_items_are_paired_by_how_their_types_end(
    item: Message, role: str, opens: tuple[str, ...], answers: tuple[str, ...]
) -> None:
    """Whoever runs the tool: what the upstream runs itself is one whole item."""
    found = facts(item)
    assert (found.role, found.opens, found.answers) == (role, opens, answers)


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b"{}", b'{"type":7}', b'{"role":""}', b'{"type":"message"}'])
def test_what_is_no_item_is_none(raw: bytes) -> None:
    """And a body with one is passed on as it came."""
    assert RESPONSES.facts(raw) is None


def test_reasoning_counts_for_nothing_and_stays_with_its_step() -> None:
    """Reasoning, what was said after it and the calls of one step are a unit, to the last output."""
    assert not facts(REASONING).significant
    step = [REASONING, said("assistant", "now"), call("1"), call("2"), output("1"), output("2")]
    found = split([said("user", "a"), *step, REASONING, said("assistant", "done"), said("user", "b")])
    assert units(found.items) == ((0, 1), (1, 7), (7, 9), (9, 10))


def test_system_text_in_between_and_the_upstreams_own_compaction_always_stay() -> None:
    """Nothing else does."""
    steady = [said("system", "s"), said("developer", "d"), {"type": "compaction", "encrypted_content": "x"}]
    assert [facts(item).stays for item in (*steady, said("user", "a"), call("1"), output("1"), REASONING)] == [
        *(True, True, True),
        *(False, False, False, False),
    ]


ONE = [said("assistant", "now"), call("1"), output("1", [{"type": "input_text", "text": "a"}])]
SAME: list[tuple[Any, Any]] = [
    (said("user", "a"), {"role": "user", "content": "a"}),
    (said("user", "a"), said("user", " a\n", id="msg_1", status="completed")),
    (said("user", "a"), said("user", "a", internal_chat_message_metadata_passthrough={"turn_id": "1"})),
    (said("assistant", "a"), said("assistant", "<think>hm</think>a", phase="final")),
    (call("1"), call("1", id="fc_1", status="completed", arguments='{ "path":"a.py" }')),
    (output("1", "a"), output("1", [{"type": "input_text", "text": "a"}], id="fco_1")),
    ({"type": "web_search_call", "id": "1", "query": "a"}, {"query": "a", "type": "web_search_call"}),
]
OTHER: list[tuple[Any, Any]] = [
    (said("user", "a"), said("user", "b")),
    (said("user", "a"), said("assistant", "a")),
    (said("user", "a"), said("user", "a", name="n")),
    (call("1"), call("2")),
    (call("1"), call("1", name="write")),
    (call("1"), call("1", arguments='{"path": "b.py"}')),
    (call("1"), call("1", arguments="path")),
    (call("1"), call("1", namespace="n")),
    (call("1"), output("1")),
    (output("1", "a"), output("1", "b")),
    (output("1", "a"), output("2", "a")),
    (
        {"type": "custom_tool_call", "call_id": "1", "name": "f", "input": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "1", "name": "f", "input": '{"a": 1}'},
    ),
    ({"type": "compaction", "encrypted_content": "a"}, {"type": "compaction", "encrypted_content": "b"}),
    ({"type": "web_search_call", "query": "a"}, {"type": "web_search_call", "query": "b"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_clients_write_otherwise_does_not_count(one: Message, other: Message) -> None:
    """Ids, status, spelling of content and arguments, notes to themselves."""
    assert facts(one).digest == facts(other).digest != b""


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_a_model_could_tell_apart_counts(one: Message, other: Message) -> None:
    """Role, text, ids of calls, names, arguments, outputs, fields nobody has heard of."""
    assert facts(one).digest != facts(other).digest


@pytest.mark.parametrize(
    ("item", "seen"),
    [
        (said("user", "a"), Said(role="user", text="a")),
        (said("assistant", "<think>hm</think>a"), Said(role="assistant", text="a")),
        (
            call("1"),
            Said(role="assistant", text="", calls=(Call(id="1", name="read", arguments='{"path": "a.py"}'),)),
        ),
        (
            {"type": "local_shell_call", "call_id": "1", "action": {"command": ["ls"]}},
            Said(
                role="assistant",
                text="",
                calls=(Call(id="1", name="local_shell", arguments='{"command":["ls"]}'),),
            ),
        ),
        (
            output("1", "Error: no"),
            Said(role="tool", text="", results=(Result(id="1", text="Error: no", error=True),)),
        ),
        (
            output("1", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}]),
            Said(role="tool", text="", results=(Result(id="1", text="a\n[input_image]"),)),
        ),
        (REASONING, Said(role="assistant", text="")),
        ({"type": "web_search_call", "query": "a"}, Said(role="assistant", text="[web_search_call]")),
    ],
)
def test_an_item_as_a_reader_sees_it(item: Message, seen: Said) -> None:
    """The same for every dialect."""
    assert RESPONSES.said(spelt(item)) == seen


def test_what_a_model_reads_is_weighed() -> None:
    """Texts, calls, outputs, media, and reasoning that only the upstream can read."""
    weights = [RESPONSES.weigh(spelt(item)) for item in (said("user", "a"), call("1"), output("1", "b"), REASONING)]
    assert [(one.texts, one.fixed) for one in weights] == [
        (("a",), 4),
        (("read", '{"path": "a.py"}'), 12),
        (("b",), 4),
        ((), 14),
    ]
    pictured = RESPONSES.weigh(spelt(output("1", [{"type": "input_image", "image_url": "data:x," + "y" * 9_000}])))
    assert (pictured.texts, pictured.fixed) == ((), 1_109)
    assert RESPONSES.weigh(b'[{"type":"function"}]').texts == ('[{"type":"function"}]',)


def test_outputs_are_shrunk_and_nothing_else() -> None:
    """All other fields of the item stay."""
    shrunk = RESPONSES.shrink(spelt(output("1", "long", id="fco_1")), lambda _: "s")
    assert shrunk is not None
    assert json.loads(shrunk) == output("1", "s", id="fco_1")
    listed = RESPONSES.shrink(spelt(output("1", [{"type": "input_text", "text": "long"}])), lambda _: "s")
    assert listed is not None
    assert json.loads(listed)["output"] == [{"type": "input_text", "text": "s"}]
    for other in (said("user", "long"), call("1"), output("1", {"type": "computer_screenshot"}), REASONING):
        assert RESPONSES.shrink(spelt(other), lambda _: "s") is None
    assert RESPONSES.shrink(b'{"type":"x_output","call_id":"1","output":"a","n":1e999}', lambda _: "s") is None


def test_what_upstreams_reject_is_a_fault() -> None:
    """Calls and outputs without each other, one id for two calls at once, reasoning alone."""

    def fault(*items: Message) -> str | None:
        return RESPONSES.invalid(split([said("user", "a"), *items]).items)

    assert fault(call("1"), call("2"), output("2"), output("1")) is None
    assert fault(call("1"), said("user", "late"), output("1")) is None
    assert fault(call("1")) == "call without its result: 1"
    assert fault(output("1")) == "result without its call: 1"
    assert fault(output("1"), call("1"), output("1")) == "result without its call: 1"
    assert fault(call("1"), call("1"), output("1")) == "call id used twice: 1"
    assert (fault(REASONING) or "").startswith("reasoning without what follows it")
    assert (fault(REASONING, said("user", "b")) or "").startswith("reasoning without what follows it")
    assert fault(REASONING, call("1"), output("1")) is None


@pytest.mark.parametrize(
    ("more", "elsewhere", "compacts"),
    [
        ({}, False, False),
        ({"previous_response_id": "r"}, True, False),
        ({"conversation": "c"}, True, False),
        ({"conversation": {"id": "c"}}, True, False),
        ({"truncation": "auto"}, False, True),
        ({"truncation": "disabled"}, False, False),
        ({"context_management": [{"type": "compaction"}]}, False, True),
    ],
)
def test_histories_that_lie_elsewhere_are_marked(more: Message, *, elsewhere: bool, compacts: bool) -> None:
    """Rules 4.7 and 4.8."""
    found = split([said("user", "a")], **more)
    assert (found.envelope.server_history, found.envelope.compacts) == (elsewhere, compacts)


def test_items_that_refer_to_the_server_or_ask_it_to_compact_are_marked() -> None:
    """By their type, not by the word in a text."""
    referring = split([said("user", "a"), {"type": "item_reference", "id": "msg_1"}])
    asking = split([said("user", "a"), {"type": "compaction_trigger"}])
    talking = split([said("user", "item_reference"), said("user", "compaction_trigger")])
    marks = [(one.envelope.server_history, one.envelope.compacts) for one in (referring, asking, talking)]
    assert marks == [(True, False), (False, True), (False, False)]


def test_a_clients_own_compaction_is_known_by_its_marks() -> None:
    """By its path, or by Codex's header."""
    found = split([said("user", "a")])
    assert RESPONSES.own_compaction({}, "responses/compact", found)
    assert RESPONSES.own_compaction({"x-codex-turn-metadata": '{"request_kind":"compaction"}'}, "responses", found)
    assert not RESPONSES.own_compaction({}, "responses", found)


def test_the_envelope_holds_what_else_counts() -> None:
    """Instructions, tools and format are read by the model; ids come from the body."""
    more = {"instructions": "i", "tools": [{"a": 1}], "text": {"format": {}}, "max_output_tokens": 7, "stream": True}
    found = split([said("developer", "d"), said("user", "a")], prompt_cache_key="k", **more)
    assert [item.raw for item in found.envelope.rest] == [b'"i"', b'[{"a":1}]', b'{"format":{}}']
    assert len(found.envelope.leading) == 1
    assert (found.envelope.output, found.envelope.stream, found.envelope.ids) == (7, True, ("k",))


def test_a_summary_request_replays_the_live_prefix() -> None:
    """Instructions, tools, thinking settings and `stream` stay; nothing is stored, called or formatted."""
    kept: Message = {
        "instructions": "i",
        "tools": [{"a": 1}],
        "reasoning": {"effort": "low"},
        "prompt_cache_key": "k",
        "stream": True,
    }
    dropped: Message = {
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_object"}},
        "background": True,
        "temperature": 1,
        "metadata": {},
        "client_metadata": {},
    }
    items = [said("user", "a"), REASONING, call("1"), output("1")]
    found = split(items, max_output_tokens=4_000, tool_choice="required", **kept, **dropped)
    value = json.loads(RESPONSES.summary_request(found, found.items, "sum up", max_tokens=9))
    assert value == {
        "model": "m",
        **kept,
        "input": [*items, json.loads(RESPONSES.user("sum up"))],
        "tool_choice": "none",
        "store": False,
        "max_output_tokens": 9,
    }
    alone = json.loads(RESPONSES.summary_request(found, found.items, "sum up", max_tokens=9, alone=True))
    assert (alone["input"], "tools" in alone, "instructions" in alone) == (
        [json.loads(RESPONSES.user("sum up"))],
        False,
        False,
    )


@pytest.mark.parametrize(
    ("more", "limit"),
    [({"stream": True}, None), ({"stream": False}, 9), ({}, 9), ({"stream": True, "max_output_tokens": 4}, 9)],
    ids=str,
)
def test_a_streaming_client_that_names_no_limit_gets_none_in_its_name(more: Message, limit: int | None) -> None:
    """Codex names none, and the backend that only streams refuses the field: the summary is bounded by its deadline."""
    found = split([said("user", "a")], **more)
    value = json.loads(RESPONSES.summary_request(found, found.items, "sum up", max_tokens=9))
    assert value.get("max_output_tokens") == limit


def reply(*output: Message, **more: object) -> bytes:
    """A whole reply."""
    return spelt({"object": "response", "status": "completed", "output": list(output), "model": "n", **more})


def test_a_whole_reply_is_read() -> None:
    """Text without thinking, how it finished, who answered, what it cost."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    assert RESPONSES.answer(reply(REASONING, said("assistant", "sum"), usage=usage)) == Completion(
        text="sum", finish="stop", model="n", usage=Usage(prompt=5, completion=2)
    )
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    filtered = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    finishes = [
        RESPONSES.answer(reply(said("assistant", "x"), **cut)),
        RESPONSES.answer(reply(said("assistant", "x"), **filtered)),
        RESPONSES.answer(reply(said("assistant", "x"), status="failed")),
        RESPONSES.answer(reply(said("assistant", "x"), call("1"))),
    ]
    assert [found.finish for found in finishes if found] == ["length", "other", "other", "tool"]


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"output":{}}', b'{"error":{}}', b"\xff"])
def test_what_is_no_reply_is_none(raw: bytes) -> None:
    """Errors, pieces, anything."""
    assert RESPONSES.answer(raw) is None


def test_usage_is_found_in_the_end_of_a_reply() -> None:
    """In the last event of a stream, and in a whole reply."""
    done = b'event: response.completed\ndata: {"response":{"usage":{"input_tokens":5,"output_tokens":2}}}\n\n'
    assert RESPONSES.usage(b"utput_text.delta\n\n" + done, sse=True) == Usage(prompt=5, completion=2)
    assert RESPONSES.usage(b'{"usage":{"input_tokens":0}}', sse=False) is None


SHAPES = st.dictionaries(
    st.sampled_from(["content", "call_id", "name", "arguments", "input", "output", "action", "summary", "id"]), JSON
)
KINDS = st.sampled_from(
    ["message", "function_call", "function_call_output", "custom_tool_call", "reasoning", "compaction", "x_output", 7]
)


@settings(max_examples=300, deadline=None)
@given(SHAPES, KINDS, st.sampled_from(["user", "assistant", None]))
def test_no_shape_of_an_item_raises(fields: Message, kind: object, role: str | None) -> None:
    """Clients may send anything."""
    raw = json.dumps({"type": kind, **fields, **({"role": role} if role else {})}).encode()
    RESPONSES.facts(raw)
    RESPONSES.said(raw)
    RESPONSES.weigh(raw)
    RESPONSES.shrink(raw, str.upper)
    RESPONSES.answer(b'{"output":[' + raw + b"]}")
    RESPONSES.split(b'{"model":"m","input":[' + raw + b"]}")


@pytest.mark.parametrize("item", ONE)
def test_one_changed_character_anywhere_changes_the_digest(item: Message) -> None:
    """In texts, names, arguments and ids of calls."""
    places = {"content", "name", "arguments", "call_id", "output"} & set(item)
    assert places
    for place in places:
        other = copy.deepcopy(item)
        if isinstance(other[place], list):
            other[place][0]["text"] += "x"
        else:
            other[place] = other[place].replace("1", "2").replace("a", "b", 1)
        assert facts(other).digest != facts(item).digest


def test_responses_is_a_dialect() -> None:
    """It fulfils the Protocol; the type checker reads this line."""
    dialect: Dialect = RESPONSES
    assert dialect.name == "responses"
