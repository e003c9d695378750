"""The word lists know orders and refusals in several languages, and let plain talk alone."""

# ruff: noqa: RUF001 - punctuation of other languages is meant

from __future__ import annotations

import pytest

from proxy.compaction.lexicon import REFUSAL, is_order, weight

ORDERS = [
    "No new dependencies.",
    "No emojis in commit messages, please",
    "No force pushes to main!",
    "Always run the tests.",
    "Don't touch vendor/.",
    "Du darfst nicht committen.",
    "Antworte immer auf Deutsch.",
    "N'utilise jamais eval.",
    "Nunca borres la base de datos.",
    "Não use var.",
    "Non usare var.",
    "Gebruik altijd tabs.",
    "Zawsze pisz testy.",
    "Her zaman Türkçe yaz.",
    "Никогда не удаляй файлы.",
    "必须使用中文回答",
    "必ずテストを実行する",
    "항상 한국어로 답하세요",
    "يجب أن تكتب الاختبارات",
    "हमेशा हिंदी में जवाब दें",
]
TALK = [
    "No problem.",
    "No tests failed after that, and no file is left to do",
    "No idea what it does.",
    "No luck with that so far.",
    "No errors now.",
    "no",
    "What does this function do?",
    "Here is the log.",
    "Danke, das sieht gut aus.",
    "看一下这个文件",
    "continue",
]
REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I cannot summarize",
    "Es tut mir leid",
    "Lo siento",
    "抱歉，我无法",
    "申し訳ありません",
]


@pytest.mark.parametrize("text", ORDERS)
def test_standing_orders_are_known(text: str) -> None:
    """One of each language."""
    assert is_order(text)
    assert is_order(text.upper())


@pytest.mark.parametrize("text", TALK)
def test_plain_talk_is_no_order(text: str) -> None:
    """A question or thanks orders nothing."""
    assert not is_order(text)


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_known_by_how_they_begin(text: str) -> None:
    """Also after white space or marks."""
    assert REFUSAL.match(f"  *{text}")


def test_a_summary_that_speaks_of_an_excuse_later_is_no_refusal() -> None:
    """Only the beginning counts."""
    assert not REFUSAL.match("## Objective\nThe user said sorry, I can't do that.")


def test_sentences_weigh_by_decisions_and_names() -> None:
    """Small talk weighs nothing."""
    assert weight("I CHOSE `tar` because zip failed.") == 4
    assert weight("已决定使用这个方案") == 1
    assert weight("Let me look at it.") == 0
