"""Asking for a summary is arithmetic first; what comes back is judged before anything is stored."""

# ruff: noqa: RUF001 - punctuation of other languages is meant

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.compaction.summarise import LEAST_SHARE, Room, accepted, instruction, planned
from proxy.dialects import Completion
from tests.compaction.scripted import a_summary, estimate

ROOM = Room(surface=3_000, most=8_192, head=20_000, prefix=21_000, window=32_768)
GOOD = a_summary()
LONG = "All is well and the parser was mended in src/parser.py by hand. " * 5
ASKED = instruction(1_000, "conversation")


def test_the_limit_field_leaves_room_for_reasoning_as_far_as_the_window_has_it() -> None:
    """The share, and up to 8,192 more."""
    wide = planned(ROOM, "conversation", estimate)
    assert wide is not None
    assert (wide.share, wide.max_tokens) == (2_048, 2_048 + 8_192)
    tight = planned(replace(ROOM, window=24_000), "conversation", estimate)
    assert tight is not None
    assert tight.max_tokens == 24_000 - 21_000 - estimate(tight.text)


def test_a_request_that_would_not_fit_is_not_made() -> None:
    """Prefix, instruction and share against the window."""
    assert planned(replace(ROOM, window=23_000), "conversation", estimate) is None


@pytest.mark.parametrize("small", [{"surface": 511}, {"most": 511}, {"head": 2_047}])
def test_a_small_share_is_left_to_the_outline(small: dict[str, int]) -> None:
    """Under 512 tokens a model is not worth asking."""
    assert planned(replace(ROOM, **small), "conversation", estimate) is None
    assert LEAST_SHARE == 512


def test_a_waiting_client_waits_for_2048_tokens_at_most() -> None:
    """And the model is told less than it may use, since few count well."""
    asked = planned(replace(ROOM, surface=15_000, head=200_000, window=400_000), "conversation", estimate)
    assert asked is not None
    assert asked.share == 2_048
    assert "at most 1638 tokens" in asked.text


def test_the_instruction_has_ten_headings_and_names_size_and_language() -> None:
    """From the packaged prompt; no placeholder is left."""
    text = instruction(700, "Deutsch")
    assert text.count("\n## ") == 10
    assert "700 tokens" in text
    assert "in Deutsch." in text
    assert "the language of the conversation" in ASKED
    assert "{" not in text


def test_a_good_summary_is_accepted_without_its_thinking() -> None:
    """Six of ten headings, or 200 characters."""
    assert accepted(GOOD, ASKED, []) == GOOD.text
    assert accepted(replace(GOOD, text=f"<think>hm</think>\n{GOOD.text}"), ASKED, []) == GOOD.text
    assert accepted(Completion(text=LONG, finish="stop"), ASKED, []) == LONG.strip()


@pytest.mark.parametrize("finish", ["length", "tool", "other"])
def test_only_a_reply_that_ended_by_itself_is_accepted(finish: str) -> None:
    """One cut by length is a failure, a tool call is none."""
    assert accepted(replace(GOOD, finish=finish), ASKED, []) is None


BAD = {
    "empty": "",
    "blank": " \n ",
    "short": "Done.",
    "a refusal": f"I'm sorry, but I can't help with that. {LONG}",
    "a refusal in German": f"Es tut mir leid, das kann ich nicht. {LONG}",
    "a refusal in Chinese": "抱歉，我无法完成这个请求。" * 20,
    "an error": f"Error: upstream timed out. {LONG}",
    "an error as JSON": '{"error": {"message": "context length exceeded"}} ' + LONG,
    "a page": f"<!DOCTYPE html><html>502 Bad Gateway {LONG}",
    "an overflow sentence": f"Context length of 8192 tokens exceeded. {LONG}",
    "a call as text": f'<tool_call>{{"name": "bash"}}</tool_call> {LONG}',
    "thinking without end": f"<think>hm {LONG}",
    "the instruction": ASKED,
    "the beginning of the instruction": ASKED[:900] + LONG,
    "a part of the head": "The result of the build, " * 20,
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_summary_is_not_accepted(name: str) -> None:
    """Whatever a bad model says."""
    assert accepted(Completion(text=BAD[name], finish="stop"), ASKED, ["x " + "The result of the build, " * 30]) is None


def test_no_reply_is_no_summary() -> None:
    """A call that failed or timed out."""
    assert accepted(None, ASKED, []) is None
