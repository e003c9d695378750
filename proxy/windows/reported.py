"""What an upstream's reply says of its windows: a table of shapes. Pure.

Each reader takes a reply and the model asked for, and returns reports by model name; empty where the
reply tells nothing. A window is never read from what the model was trained with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.policy import WindowKind

__all__ = ["Reported", "listed", "props", "running", "shown"]

#: Numbers outside these bounds are no windows.
_LEAST, _MOST = 128, 100_000_000
#: At most so many models of one list are read.
_LISTED = 2048
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A window as reported. `guess`: it may be smaller in truth, so ask again soon."""

    tokens: int
    kind: WindowKind = "total"
    adds_output: bool = True
    guess: bool = False


#: Where an entry of `/v1/models` names its window, best first: path, kind, whether the server adds the output.
_SHAPES: tuple[tuple[tuple[str, ...], WindowKind, bool], ...] = (
    (("meta", "n_ctx"), "total", False),  # llama.cpp; `n_ctx_train` beside it is not the window
    (("loaded_context_length",), "total", False),  # LM Studio, as loaded
    (("max_model_len",), "total", True),  # vLLM, SGLang
    (("capabilities", "limits", "max_prompt_tokens"), "input", False),  # Copilot
    (("capabilities", "limits", "max_context_window_tokens"), "total", True),
    (("top_provider", "context_length"), "total", True),  # OpenRouter: what the endpoint in use has
    (("context_length",), "total", True),  # OpenRouter, Together, Moonshot
    (("context_window",), "total", True),  # Groq
    (("max_input_tokens",), "input", False),  # Anthropic
    (("model_info", "max_input_tokens"), "input", False),  # LiteLLM
    (("inputTokenLimit",), "input", False),  # Gemini
    (("max_context_length",), "total", True),  # Mistral, LM Studio
    (("metadata", "context_length"), "total", True),  # DeepInfra
    (("context_size",), "total", True),  # Novita
)


def listed(data: bytes, model: str) -> dict[str, Reported]:
    """Read `GET /v1/models`. A llama.cpp server that serves one model serves it under every name."""
    reply = _decoded(data)
    entries = reply if isinstance(reply, list) else _at(reply, ("data",)) or _at(reply, ("models",))
    if not isinstance(entries, list):
        return {}
    reports: dict[str, Reported] = {}
    for entry in entries[:_LISTED]:
        report = _entry(entry)
        if report is not None:
            for name in _names(entry):
                reports.setdefault(name, report)
    only = _entry(entries[0]) if len(entries) == 1 else None
    if only is not None and _at(entries[0], ("meta", "n_ctx")) is not None:
        reports.setdefault(model, only)
    return reports


def _entry(entry: object) -> Reported | None:
    for path, kind, adds in _SHAPES:
        tokens = _tokens(_at(entry, path))
        if tokens is not None:
            return Reported(tokens=tokens, kind=kind, adds_output=adds)
    return None


def _names(entry: object) -> Iterator[str]:
    """Yield the names under which a model is asked for."""
    aliases = _at(entry, ("aliases",))
    for name in (_at(entry, ("id",)), _at(entry, ("name",)), *(aliases if isinstance(aliases, list) else ())):
        if isinstance(name, str) and name:
            yield name.removeprefix("models/")


def props(data: bytes, model: str) -> dict[str, Reported]:
    """Read llama.cpp's `GET /props`: the context of one slot, whatever the model is called."""
    tokens = _tokens(_at(_decoded(data), ("default_generation_settings", "n_ctx")))
    return {} if tokens is None else {model: Reported(tokens=tokens, adds_output=False)}


def shown(data: bytes, model: str) -> dict[str, Reported]:
    """Read Ollama's `POST /api/show`: `num_ctx` where the model sets it, else what the model can hold.

    The latter is only an upper bound, since the server may have been started with less.
    """
    reply = _decoded(data)
    parameters, info = _at(reply, ("parameters",)), _at(reply, ("model_info",))
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    tokens = _tokens(int(found[1])) if found else None
    if tokens is not None:
        return {model: Reported(tokens=tokens, adds_output=False)}
    lengths = [v for k, v in info.items() if k.endswith(".context_length")] if isinstance(info, dict) else []
    tokens = _tokens(lengths[0]) if len(lengths) == 1 else None
    return {} if tokens is None else {model: Reported(tokens=tokens, adds_output=False, guess=True)}


def running(data: bytes, model: str) -> dict[str, Reported]:
    """Read Ollama's `GET /api/ps`: the context with which a model is loaded."""
    entries = _at(_decoded(data), ("models",))
    for entry in entries if isinstance(entries, list) else ():
        tokens = _tokens(_at(entry, ("context_length",)))
        names = {_at(entry, ("name",)), _at(entry, ("model",))}
        if tokens is not None and names & {model, f"{model}:latest"}:
            return {model: Reported(tokens=tokens, adds_output=False)}
    return {}


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _tokens(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return int(str(value)) if whole and _LEAST <= int(str(value)) <= _MOST else None
