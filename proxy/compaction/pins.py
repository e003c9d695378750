"""What code keeps in the users' own words, whatever a model writes: task, newest message, rules, words.

Only user messages are read: taking orders from tool results or assistant text would be a way in, and a
client may change its system text. Everything is carried from round to round as data (`Carry`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from proxy.compaction.elision import Count, fit
from proxy.compaction.lexicon import POINTER, SENTENCE, STANCE, is_order

__all__ = ["Pins", "fitted", "newest_within", "pins", "rule_sentences"]

_BULLET = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_FENCED = re.compile(r"^```.*?(?:^```\s*$|\Z)", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"\w+")
_LONGEST_RULE = 400
#: Code points read at each end of a message: a long one is a paste, and orders stand before or after it.
_READ = 20_000
#: Code points of a sentence that a pattern of the configuration is shown: its author need not know what is quadratic.
_SHOWN = 2_000
#: One word alone ("Always?") orders nothing.
_LEAST_WORDS = 2
#: Chinese, Japanese and Korean writing begins here.
_FIRST_WITHOUT_SPACES = "\u2e80"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What of the users a surface keeps, uncut. `newest` is empty where the newest message stays raw.

    `rules` and `words` are oldest first; `words` holds neither the task nor, in `shown`, the newest.
    """

    task: str = ""
    newest: str = ""
    rules: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def pins(texts: Sequence[str], *, before: Pins, patterns: Sequence[str], newest_in_head: bool) -> Pins:
    """Merge what the users said in the head, oldest first, into what was carried.

    `before` holds the carried task, rules and words. The newest statement of a rule wins: one that says
    the same, or takes another stand on the same thing, goes. A message said again moves to its newest place.
    """
    said = [text.strip() for text in texts if text.strip()]
    task = before.task or (said[0] if said else "")
    words = _distinct((*before.words, *said))
    rules = _newest_rules((*before.rules, *(rule for text in said for rule in rule_sentences(text, patterns))))
    return Pins(
        task=task,
        newest=words[-1] if newest_in_head and words else "",
        rules=rules,
        words=tuple(word for word in words if word != task),
    )


def rule_sentences(text: str, patterns: Sequence[str] = ()) -> Iterator[str]:
    """The sentences of a user's text that order something for good; code blocks are not read.

    One that speaks of the sentence before it in its paragraph ("The API is frozen. Never change it.") brings that one.
    """
    wanted = [_compiled(pattern) for pattern in patterns]
    ends = text if len(text) <= 2 * _READ else f"{text[:_READ]}\n{text[-_READ:]}"
    for line in _FENCED.sub("\n", ends).splitlines():
        before = ""
        for sentence in SENTENCE.split(line):
            bare = _BULLET.sub("", sentence).strip()
            if (is_order(bare) or any(one.search(bare[:_SHOWN]) for one in wanted)) and _says_something(bare):
                yield _with_what_it_means(bare, before)
                before = ""  # it is a rule already
            else:
                before = bare


def _with_what_it_means(rule: str, before: str) -> str:
    """A rule behind the sentence it speaks of, where the two are short enough for one rule."""
    both = f"{before} {rule}"
    return both if before and len(both) <= _LONGEST_RULE and POINTER.search(rule) else rule


def newest_within(texts: Sequence[str], budget: int, count: Count, *, each: int | None = None) -> tuple[str, ...]:
    """As many of the newest texts as their budget of tokens holds, oldest first; each cut to `each` tokens.

    The one that no longer fits whole is cut to what is left, older ones go.
    """
    kept: list[str] = []
    left = budget
    for text in reversed(texts):
        shorter = fit(text, min(left, each if each is not None else left), count)
        if not shorter:
            break
        kept.append(shorter)
        left -= count(shorter) + 1
    return tuple(reversed(kept))


def fitted(found: Pins, budget: int, count: Count) -> Pins:
    """Task, newest message and rules cut to an eighth of the surface each, and words small enough to carry."""
    share = budget // 8
    task = fit(found.task, share, count)
    newest = "" if found.newest == found.task else fit(found.newest, share, count)
    rules = newest_within([_bounded(rule) for rule in found.rules], share, count)
    words = newest_within(found.words, budget, count, each=share)
    return Pins(task=task, newest=newest, rules=rules, words=words)


def _bounded(rule: str) -> str:
    return rule if len(rule) <= _LONGEST_RULE else rule[: _LONGEST_RULE - 1] + "…"


def _newest_rules(rules: Iterable[str]) -> tuple[str, ...]:
    newest: dict[tuple[str, ...], str] = {}
    for rule in rules:
        key = _subject(rule)
        newest.pop(key, None)
        newest[key] = rule
    return tuple(newest.values())


def _subject(rule: str) -> tuple[str, ...]:
    """What a rule is about, without its stand; the rule itself where nothing else is left of it."""
    words = tuple(_WORD.findall(unicodedata.normalize("NFKC", rule).casefold()))
    return tuple(word for word in words if word not in STANCE) or words


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    newest: dict[str, None] = {}
    for text in texts:
        newest.pop(text, None)
        newest[text] = None
    return tuple(newest)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _says_something(sentence: str) -> bool:
    """Whether it has more than one word, or is in a script that writes words without spaces."""
    return len(_WORD.findall(sentence)) >= _LEAST_WORDS or any(one >= _FIRST_WITHOUT_SPACES for one in sentence)
