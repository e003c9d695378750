"""Windows out of the table that ships inside litellm, read as data; litellm itself is never imported.

Its `max_input_tokens` is the input limit for some models and the whole window for others. It counts as
*input* (nothing need be kept free for the reply):

- where input and output together make a total that the provider names: 272,000 + 128,000 = 400,000 and
  922,000 + 128,000 = 1,050,000 (OpenAI's GPT-5 family; its refusals speak of an "input tokens limit" of 272,000);
- for Gemini, xAI, Anthropic and Copilot, whose refusals name a limit of the prompt.

Everywhere else it is *total*, the careful reading: taking a total for an input limit overflows, the
reverse only compacts a little early.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from proxy.policy import WindowKind
from proxy.windows.reported import Reported

__all__ = ["Table", "load"]

_FILE = "model_prices_and_context_window_backup.json"
_MODES = {"chat", "responses", "completion"}
_INPUT_PAIRS = {(272_000, 128_000), (922_000, 128_000)}
_INPUT_PROVIDERS = {
    "anthropic",
    "gemini",
    "github_copilot",
    "vertex_ai-anthropic_models",
    "vertex_ai-language-models",
    "xai",
}
#: Endings that name an edition of a model, not another model.
_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class Table:
    """Windows by model name, as litellm spells it: `gpt-5`, `mistral/mistral-large-latest`."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        """Take the decoded table; entries that are no chat models or name no window are left out."""
        self._exact = {name: report for name, entry in entries.items() if (report := _report(entry))}
        self._bare: dict[str, dict[str, Reported]] = {}
        for name, report in self._exact.items():
            provider, slash, bare = name.partition("/")
            if slash:
                self._bare.setdefault(bare, {})[provider] = report

    def find(self, model: str, places: Iterable[str] = ()) -> Reported | None:
        """Return a model's window, None where the table does not tell for sure.

        `places` (an upstream's name, its host) choose among providers that offer one model; without
        such a hint all of them must agree.
        """
        hints = [place.lower() for place in places]
        for name in _spellings(model):
            offers = self._bare.get(name, {})
            by_place = [r for p, r in offers.items() if any(_words(p) & _words(hint) for hint in hints)]
            candidates = by_place or ([self._exact[name]] if name in self._exact else list(offers.values()))
            if len(set(candidates)) == 1:
                return candidates[0]
        return None


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if word not in {"", "ai", "api", "com", "www", "v1"}}


def _spellings(model: str) -> Iterator[str]:
    """Yield a name, then without its date, then both without what stands before a slash."""
    while True:
        yield model
        undated = _DATED.sub("", model)
        if undated != model:
            yield undated
        _, slash, model = model.partition("/")
        if not slash:
            return


def _report(entry: object) -> Reported | None:
    if not isinstance(entry, dict) or str(entry.get("mode")) not in _MODES:
        return None
    tokens, output = entry.get("max_input_tokens"), entry.get("max_output_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1024:
        return None
    is_pair = isinstance(output, int) and (tokens, output) in _INPUT_PAIRS
    is_input = is_pair or str(entry.get("litellm_provider")) in _INPUT_PROVIDERS
    kind: WindowKind = "input" if is_input else "total"
    return Reported(tokens=tokens, kind=kind, adds_output=kind == "total")


def load() -> Table:
    """Read the table (about 30 ms; call it in a thread). Empty where litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    folders = spec.submodule_search_locations if spec else None
    path = Path(next(iter(folders)), _FILE) if folders else None
    if path is None or not path.is_file():
        return Table({})
    return Table(msgspec.json.decode(path.read_bytes()))
