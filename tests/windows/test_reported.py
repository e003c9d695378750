"""What upstreams' replies say of their windows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.windows.reported import EVERY, Reported, is_name, listed, props, running, shown


def _list(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


@pytest.mark.parametrize(
    ("entry", "report"),
    [
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, Reported(tokens=4096, adds_output=False)),
        ({"max_model_len": 65536, "owned_by": "vllm"}, Reported(tokens=65536)),
        ({"context_length": 200000, "top_provider": {"context_length": 131072}}, Reported(tokens=131072)),
        ({"context_length": 200000, "top_provider": {"context_length": None}}, Reported(tokens=200000)),
        ({"context_length": 200000.0}, Reported(tokens=200000)),
        ({"loaded_context_length": 8192, "max_context_length": 131072}, Reported(tokens=8192, adds_output=False)),
        ({"max_context_length": 131072}, Reported(tokens=131072)),
        ({"context_window": 131072}, Reported(tokens=131072)),
        ({"max_input_tokens": 200000, "max_tokens": 64000}, Reported(tokens=200000, kind="input", adds_output=False)),
        ({"capabilities": {"limits": {"max_prompt_tokens": 64000, "max_context_window_tokens": 128000}}},
         Reported(tokens=64000, kind="input", adds_output=False)),
        ({"metadata": {"context_length": 40960}}, Reported(tokens=40960)),
    ],
)  # fmt: skip
def test_each_provider_names_the_window_in_its_own_place(entry: dict[str, Any], report: Reported) -> None:
    """llama.cpp, vLLM, OpenRouter, LM Studio, Mistral, Groq, Anthropic, Copilot, DeepInfra."""
    assert listed(_list({"id": "other"}, {"id": "m", **entry}), "m") == {"m": report}


def test_what_a_model_was_trained_with_is_not_its_window() -> None:
    """An older llama.cpp names nothing else."""
    assert listed(_list({"id": "m", "meta": {"n_ctx_train": 131072}}), "m") == {}


def test_a_llama_server_with_one_model_serves_it_under_every_name() -> None:
    """It does not look at the name. A vLLM server does."""
    assert listed(_list({"id": "file.gguf", "meta": {"n_ctx": 2048}}), "gpt-4o")[EVERY].tokens == 2048
    assert set(listed(_list({"id": "m", "max_model_len": 2048}), "gpt-4o")) == {"m"}


def test_gemini_lists_models_with_a_prefix() -> None:
    """Clients leave it out."""
    data = json.dumps({"models": [{"name": "models/gemini-x", "inputTokenLimit": 1048576}]}).encode()
    assert listed(data, "gemini-x")["gemini-x"] == Reported(tokens=1048576, kind="input", adds_output=False)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b"[]", b"{}", b'{"data": 1}', b'{"data": [1, null, "x", []]}', b'{"data": {"id": "m"}}',
        b'{"data": [{"id": "m", "max_model_len": "65536"}]}', b'{"data": [{"id": "m", "max_model_len": true}]}',
        b'{"data": [{"id": "m", "max_model_len": -1}]}', b'{"data": [{"id": "m", "max_model_len": 1e300}]}',
        b'{"data": [{"id": 7, "max_model_len": 65536}]}', b"[" * 100_000, b"\xff",
        b'{"data": [{"id": "m", "max_model_len": 123456789012345678901234567890}]}',
    ],
)  # fmt: skip
def test_a_reply_that_tells_nothing_gives_nothing(data: bytes) -> None:
    """Whatever it is."""
    assert listed(data, "m") == {}
    assert props(data, "m") == {}
    assert shown(data, "m") == {}
    assert running(data, "m") == {}


def test_props_of_llama_name_the_context_of_one_slot() -> None:
    """For every name."""
    data = json.dumps({"default_generation_settings": {"n_ctx": 1024}, "total_slots": 1}).encode()
    assert props(data, "any") == {EVERY: Reported(tokens=1024, adds_output=False)}


def test_ollama_shows_num_ctx_or_else_what_the_model_can_hold() -> None:
    """The latter is a guess: the server may have been started with less."""
    info = {"model_info": {"general.architecture": "llama", "llama.context_length": 131072}}
    data = json.dumps(info | {"parameters": 'stop "<|eot|>"\nnum_ctx                        16384\n'}).encode()
    assert shown(data, "m") == {"m": Reported(tokens=16384, adds_output=False)}
    assert shown(json.dumps(info).encode(), "m") == {"m": Reported(tokens=131072, adds_output=False, guess=True)}


def test_an_absurd_num_ctx_is_no_window() -> None:
    """Python would refuse to read so many digits."""
    assert shown(json.dumps({"parameters": "num_ctx " + "9" * 5000}).encode(), "m") == {}


def test_ollama_tells_with_what_context_a_model_is_loaded() -> None:
    """By its name with or without the tag."""
    data = json.dumps(
        {"models": [{"name": "llama3:latest", "model": "llama3:latest", "context_length": 4096}]}
    ).encode()
    assert running(data, "llama3") == {"llama3": Reported(tokens=4096, adds_output=False)}
    assert running(data, "other") == {}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("m", True), ("é" * 512, True), ("n" * 513, False), ("", False), ("\udc80", False), (None, False), (["m"], False)],
)
def test_a_name_is_a_text_of_bounded_length(value: Any, is_one: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """Others are neither read out of an answer nor asked for."""
    assert is_name(value) == is_one
    data = json.dumps({"data": [{"id": value, "max_model_len": 4096}]}).encode()
    assert (set(listed(data, "m")) == {value}) if is_one else (listed(data, "m") == {})


def test_a_list_is_read_up_to_a_bound() -> None:
    """Neither models nor the names of one are read without end."""
    names = [f"m{number}" for number in range(5_000)]
    assert len(listed(_list({"id": "m", "aliases": names, "max_model_len": 4096}), "m")) == 2_048
    assert len(listed(_list(*({"id": name, "max_model_len": 4096} for name in names)), "m")) == 2_048
