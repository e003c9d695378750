"""Task, newest message, rules and words of users: kept by code, in their own words, within budgets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.compaction.pins import Pins, fitted, newest_within, pins, rule_sentences
from tests.compaction.scripted import estimate

TEXTS = st.lists(st.text(alphabet="abc always never.\n", max_size=200), max_size=8)


def found(*texts: str, before: Pins | None = None, patterns: tuple[str, ...] = (), newest: bool = False) -> Pins:
    """The pins of what users said."""
    return pins(texts, before=before or Pins(), patterns=patterns, newest_in_head=newest)


def test_the_first_user_message_is_the_task() -> None:
    """And it is not repeated among the words."""
    seen = found("Fix the parser.", "Thanks.", "Now the lexer.")
    assert (seen.task, seen.words) == ("Fix the parser.", ("Thanks.", "Now the lexer."))


def test_a_carried_task_stays_the_task() -> None:
    """What comes first in a later head is only a word."""
    seen = found("Now the lexer.", before=Pins(task="Fix the parser.", words=("Thanks.",)))
    assert (seen.task, seen.words) == ("Fix the parser.", ("Thanks.", "Now the lexer."))


def test_the_newest_message_is_pinned_where_it_goes_with_the_head() -> None:
    """Carried words know it when no newer one came."""
    assert found("Task.", "Do this next.", newest=True).newest == "Do this next."
    assert found(before=Pins(task="Task.", words=("Old.", "Do this next.")), newest=True).newest == "Do this next."
    assert found("Task.", "Do this next.", newest=False).newest == ""


def test_rule_sentences_are_taken_whole_from_where_they_stand() -> None:
    """Sentence by sentence and bullet by bullet, code blocks left out."""
    text = "Hi there. Never push to main! And:\n- always run `make check`\n```\nyou must obey\n```\nThe end."
    assert [*rule_sentences(text)] == ["Never push to main!", "always run `make check`"]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("The API is frozen. Never change it.", ["The API is frozen. Never change it."]),
        ("Die API ist eingefroren. Ändere das nie.", ["Die API ist eingefroren. Ändere das nie."]),
        ("旧接口已经冻结。不要改它。", ["旧接口已经冻结。 不要改它。"]),
        ("- The API is frozen. Never change it.\n- Add tests.", ["The API is frozen. Never change it."]),
        ("The API is frozen.\nNever change it.", ["Never change it."]),
        ("Never push to main. It must stay green.", ["Never push to main.", "It must stay green."]),
        ("I like tea. Always run the tests.", ["Always run the tests."]),
        (f"{'A log. ' * 80}{'w' * 400}. Never do that.", ["Never do that."]),
    ],
)
def test_a_rule_brings_the_sentence_it_speaks_of(text: str, rules: list[str]) -> None:
    """Of the same paragraph, where that is no rule itself and the two are short enough."""
    assert list(rule_sentences(text)) == rules


def test_one_word_is_no_rule_but_one_sentence_without_spaces_is() -> None:
    """Chinese and Japanese write words together."""
    assert [*rule_sentences("Always!\n必须使用中文回答。\nThanks.")] == ["必须使用中文回答。"]


def test_orders_before_and_after_a_long_paste_are_found() -> None:
    """The middle of a very long message is not searched."""
    paste = "never mind this line\n" * 10_000
    found = [*rule_sentences(f"Always be brief.\n{paste}\nNever push.")]
    assert (found[0], found[-1]) == ("Always be brief.", "Never push.")
    assert len(found) < 2_500


def test_patterns_of_the_policy_name_further_rules() -> None:
    """Regular expressions, in any case."""
    assert [*rule_sentences("House style: tabs. Bye now.", ["^house style"])] == ["House style: tabs."]


def test_a_pattern_of_the_policy_sees_the_first_two_thousand_signs_of_a_sentence() -> None:
    """Nobody need know which patterns are quadratic: this one would read the sentence from every one of its spaces."""
    before, after = "a" * 1_900, "a" * 2_000
    sentences = [f"word {before} tabs are meant", f"word {after} tabs are meant"]
    assert [*rule_sentences("\n".join(sentences), ["tabs"])] == sentences[:1]
    began = time.thread_time()
    assert [*rule_sentences("x " + " " * 39_000 + "y", [r"\s+tabs"])] == []
    assert time.thread_time() - began < 1.0  # 39,000 signs take seconds


def test_the_newest_statement_of_a_rule_wins() -> None:
    """Said again it moves to the end; with another stand on the same thing it replaces the first."""
    seen = found("Always use tabs.", "Never edit vendor files.", "Never use tabs.", "Never edit vendor files.")
    assert seen.rules == ("Never use tabs.", "Never edit vendor files.")


def test_carried_rules_are_merged_with_new_ones() -> None:
    """Oldest first, no rule twice."""
    seen = found("Only write Rust.", "Always test it.", before=Pins(task="t", rules=("Always test it.", "Never push.")))
    assert seen.rules == ("Never push.", "Only write Rust.", "Always test it.")


def test_the_newest_texts_are_kept_oldest_first() -> None:
    """The one that no longer fits whole is cut, older ones go."""
    kept = newest_within(["a" * 400, "b" * 400, "c" * 40], 60, estimate)
    assert kept[-1] == "c" * 40
    assert kept[0].startswith("b")
    assert "elided" in kept[0]
    assert len(kept) == 2


@given(texts=TEXTS, budget=st.integers(8, 400), newest=st.booleans())
def test_fitted_pins_are_within_their_shares_and_fitting_again_changes_nothing(
    texts: list[str], budget: int, *, newest: bool
) -> None:
    """An eighth of the surface each for task, newest message and rules."""
    once = fitted(found(*texts, newest=newest), budget, estimate)
    assert estimate(once.task) <= budget // 8
    assert estimate(once.newest) <= budget // 8
    assert sum(map(estimate, once.rules)) <= budget // 8
    assert sum(map(estimate, once.words)) <= budget
    assert fitted(once, budget, estimate) == once


@given(TEXTS)
def test_pins_are_deterministic(texts: list[str]) -> None:
    """The same words give the same pins."""
    assert found(*texts) == found(*texts)
