from __future__ import annotations

from proxy.core.overflow_sentence import is_overflow_sentence


def test_a_sentence_counts_only_as_a_whole() -> None:
    """The one exception for content: a first delta that is nothing but the overflow sentence."""
    sentence = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
    assert is_overflow_sentence(sentence)
    assert is_overflow_sentence(
        "the request exceeds the available context size. try increasing the context size or enable context shift"
    )
    assert not is_overflow_sentence(f"The server says: {sentence}")
    assert not is_overflow_sentence(f"{sentence} That means your prompt is long.")
    assert not is_overflow_sentence("context_length_exceeded")
    assert not is_overflow_sentence("")
