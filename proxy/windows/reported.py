"""What an upstream's reply says of its windows: a table of shapes. Pure.

Each reader takes a reply and the model asked for, and returns reports by model name (`EVERY`: whatever the
model is called); empty where the reply tells nothing, and nothing that a server can answer makes it raise.
A window is never read from what the model was trained with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from proxy.policy import WindowKind

__all__ = ["EVERY", "Reported", "is_name", "listed", "props", "running", "shown"]

#: Numbers outside these bounds are no windows.
_LEAST, _MOST = 128, 100_000_000
#: At most so many models of one list are read, and so many names of them.
_LISTED = 2048
#: No model is called by more characters.
_LONGEST = 512
#: Within its line: blanks that may be line ends as well would be tried anew from each of them.
_NUM_CTX = re.compile(r"^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$", re.MULTILINE)
#: No name: the key of a report that holds whatever the model is called.
EVERY = ""


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


def is_name(value: object) -> bool:
    """Whether a server can know a model by this name; what is no text for JSON cannot even be asked for."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def listed(data: bytes, _model: str) -> dict[str, Reported]:
    """Read `GET /v1/models`. A llama.cpp server that serves one model serves it under every name."""
    reply = _decoded(data)
    entries = reply if isinstance(reply, list) else _at(reply, ("data",)) or _at(reply, ("models",))
    if not isinstance(entries, list):
        return {}
    reports: dict[str, Reported] = {}
    for entry in entries[:_LISTED]:
        report = _entry(entry)
        if report is not None:
            for name in islice(_names(entry), _LISTED - len(reports)):
                reports.setdefault(name, report)
    only = _entry(entries[0]) if len(entries) == 1 else None
    if only is not None and _at(entries[0], ("meta", "n_ctx")) is not None:
        reports[EVERY] = only
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
        if isinstance(name, str) and is_name(bare := name.removeprefix("models/")):
            yield bare


def props(data: bytes, _model: str) -> dict[str, Reported]:
    """Read llama.cpp's `GET /props`: the context of one slot, whatever the model is called."""
    tokens = _tokens(_at(_decoded(data), ("default_generation_settings", "n_ctx")))
    return {} if tokens is None else {EVERY: Reported(tokens=tokens, adds_output=False)}


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
        named = [_at(entry, ("name",)), _at(entry, ("model",))]
        if tokens is not None and (model in named or f"{model}:latest" in named):
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
    """A whole number within the bounds, however it is spelt: `65536.0` is one, `"65536"` and `true` are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        return None
    return int(value) if value == int(value) else None
