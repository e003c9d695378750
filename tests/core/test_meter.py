"""The meter: one estimate per item, remembered; the same on both sides of every comparison."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.meter import Meter, Weight, measured, parts
from proxy.core.transcript import Item
from proxy.dialects.chat import CHAT
from tests.transcripts import item, says, system, transcript, user


class Counting:
    """An encoder of one token per character that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> int:
        """Count a text."""
        self.asked.append(text)
        return len(text)


def test_an_item_weighs_its_texts_and_what_is_fixed() -> None:
    """Texts go through the encoder one by one, the rest is added."""
    meter = Meter(lambda _: Weight(texts=("ab", "c"), fixed=10), len)
    assert meter.item(item(user("x"))) == 13
    assert meter.raw(b"{}") == 13


def test_a_message_is_counted_once() -> None:
    """The second look asks no encoder, and its cost is known beforehand."""
    counting = Counting()
    meter, message = Meter(CHAT.weigh, counting), item(user("hello"))
    assert meter.unknown([message]) == len(message.raw)
    first = meter.item(message)
    assert meter.unknown([message, item(user("new"))]) == len(item(user("new")).raw)
    assert meter.item(message) == first
    assert counting.asked == ["hello"]


def test_a_message_of_no_tokens_is_known_as_well() -> None:
    """Zero is an answer, not a gap."""
    meter = Meter(lambda _: Weight(texts=(), fixed=0), len)
    assert meter.item(item(user("x"))) == 0
    assert meter.unknown([item(user("x"))]) == 0


def test_the_total_is_the_envelope_and_the_items() -> None:
    """System text, tools and the priming of the reply count with the items."""
    found = CHAT.split(
        b'{"model":"m","tools":[{"a":1}],"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}]}'
    )
    assert found is not None
    meter = Meter(CHAT.weigh, len)
    envelope = meter.envelope(found.envelope)
    assert [part.raw for part in parts(found.envelope)] == [b'{"role":"system","content":"be"}', b'[{"a":1}]']
    assert envelope == 3 + (4 + 2) + len('[{"a":1}]')
    assert meter.total(found.envelope, found.items) == envelope + 4 + 2


@given(st.lists(st.text("ab ", max_size=20), max_size=6))
def test_counts_scale_with_the_messages(texts: list[str]) -> None:
    """The total of many is the sum of each, and every further message costs something."""
    meter = Meter(CHAT.weigh, len)
    messages = [item(says(text)) for text in texts]
    found = transcript(system("s"), user("u"))
    base = meter.total(found.envelope, [])
    totals = [meter.total(found.envelope, messages[:count]) - base for count in range(len(messages) + 1)]
    assert totals == sorted(set(totals))
    assert totals[-1] == sum(meter.item(message) for message in messages)


@given(st.integers(0, 10_000_000), st.floats(0.5, 4.0))
def test_calibration_scales_the_estimate_and_rounds_up(estimate: int, calibration: float) -> None:
    """What is measured is never less than what the calibration says."""
    assert measured(estimate, calibration) - 1 <= estimate * calibration <= measured(estimate, calibration)
    assert measured(estimate, 1.0) == estimate


def test_items_of_the_same_bytes_are_one() -> None:
    """The memory goes by the digest of the bytes."""
    counting = Counting()
    meter = Meter(CHAT.weigh, counting)
    one = item(user("x"))
    assert meter.item(one) == meter.item(Item(one.raw, one.key, one.facts))
    assert len(counting.asked) == 1
