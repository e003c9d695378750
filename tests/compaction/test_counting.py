"""Tokens of texts, with the job's own meter."""

from __future__ import annotations

import pytest

from proxy.compaction.counting import counter, empty, worst
from proxy.dialects.chat import CHAT
from tests.compaction.scripted import ScriptedJob, conversation, user


@pytest.mark.parametrize(("calibration", "more"), [(1.0, 1.0), (2.0, 1.0), (0.5, 2.0)])
def test_a_text_counts_what_it_adds_to_an_item(calibration: float, more: float) -> None:
    """Nothing for an empty one; for a budget that must not be passed a calibration below one does not count."""
    job = ScriptedJob(conversation(user("hi")), window=8_192, calibration=calibration)
    text = "so and so " * 100
    assert counter(job)("") == worst(job)("") == 0
    assert counter(job)(text) == job.measure([CHAT.user(text)]) - empty(job)
    assert worst(job)(text) == pytest.approx(counter(job)(text) * more, abs=1)
