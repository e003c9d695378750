"""Asking for a summary is arithmetic first; what comes back is judged before anything is stored."""

# ruff: noqa: RUF001 - punctuation of other languages is meant

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.compaction.summarise import LEAST_SHARE, Ask, accepted, planned, share
from proxy.compaction.wording import live
from proxy.dialects import Completion
from tests.compaction.scripted import a_summary, estimate

GOOD = a_summary()
LONG = "All is well and the parser was mended in src/parser.py by hand. " * 5
ASKED = live(1_000, "conversation")


ROOM = {"surface": 3_000, "most": 8_192, "head": 20_000}


def _planned(window: int) -> Ask | None:
    return planned(ASKED, share=2_048, prefix=21_000, window=window, count=estimate)


def test_the_limit_field_leaves_room_for_reasoning_as_far_as_the_window_has_it() -> None:
    """The share, and up to 8,192 more."""
    wide = _planned(32_768)
    assert wide == Ask(text=ASKED, max_tokens=2_048 + 8_192, share=2_048)
    tight = _planned(24_000)
    assert tight is not None
    assert tight.max_tokens == 24_000 - 21_000 - estimate(ASKED)


def test_a_request_that_would_not_fit_is_not_made() -> None:
    """Prefix, instruction and share against the window, to the token."""
    least = 21_000 + estimate(ASKED) + 2_048
    assert _planned(least) == Ask(text=ASKED, max_tokens=2_048, share=2_048)
    assert _planned(least - 1) is None


@pytest.mark.parametrize("small", [{"surface": 511}, {"most": 511}, {"head": 2_047}])
def test_a_summary_takes_no_more_than_surface_policy_and_a_fourth_of_the_head(small: dict[str, int]) -> None:
    """The least of them; under 512 tokens a model is not worth asking."""
    assert share(**{**ROOM, **small}, waits=False) == 511
    assert LEAST_SHARE == 512
    assert share(**{**ROOM, "surface": -9}, waits=True) == 0


@pytest.mark.parametrize(("waits", "most"), [(True, 2_048), (False, 3_000)])
def test_only_a_waiting_client_waits_for_2048_tokens_at_most(*, waits: bool, most: int) -> None:
    """In the background there is time for all that fits."""
    assert share(**ROOM, waits=waits) == most


def test_a_good_summary_is_accepted_without_its_thinking() -> None:
    """Six of ten headings, or 200 characters."""
    assert accepted(GOOD, ASKED, []) == GOOD.text
    assert accepted(replace(GOOD, text=f"<think>hm</think>\n{GOOD.text}"), ASKED, []) == GOOD.text
    assert accepted(Completion(text=LONG, finish="stop"), ASKED, []) == LONG.strip()


@pytest.mark.parametrize(
    "text", ["Разбор исправлен в src/parser.py, проверки прошли. " * 8, "解析器已修复，测试全部通过。" * 20]
)
def test_a_summary_in_any_language_is_accepted(text: str) -> None:
    """Whatever it was asked for: it says what was done, and the headings are not the point."""
    assert accepted(Completion(text=text, finish="stop"), ASKED, []) == text.strip()


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
