"""Token counts of text with tiktoken, from encodings that lie inside an installed package.

Nothing is downloaded: the encodings are those litellm ships, found without importing it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import tiktoken

__all__ = ["count_with", "encoding_for"]

_LOG = logging.getLogger(__name__)
_LOADING = threading.Lock()
#: A run of a million spaces makes the encoder give up with an error that is not an `Exception`.
_PIECE = 100_000
_BYTES_PER_TOKEN = 3
_OLD_MODELS = ("gpt-4-", "gpt-3.5", "text-embedding")


def encoding_for(model: str) -> str:
    """The encoding's name: `cl100k_base` for old OpenAI models, `o200k_base` for all else."""
    return "cl100k_base" if model == "gpt-4" or model.startswith(_OLD_MODELS) else "o200k_base"


@lru_cache(maxsize=4)
def count_with(encoding: str) -> Callable[[str], int]:
    """A function that counts tokens of text; loading takes about 0.3 s, so warm it at start."""
    with _LOADING:
        os.environ["TIKTOKEN_CACHE_DIR"] = str(_packaged())
        encoder = tiktoken.get_encoding(encoding)

    def count(text: str) -> int:
        return sum(_count(encoder, text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))

    return count


def _count(encoder: tiktoken.Encoding, piece: str) -> int:
    try:
        return len(encoder.encode_ordinary(piece))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - the encoder's panic is no Exception; an estimate serves as well
        _LOG.warning("the encoder gave up on a text of %d characters; its size is estimated", len(piece))
        return len(piece.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def _packaged() -> Path:
    found = importlib.util.find_spec("litellm")
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise RuntimeError("the package litellm is not installed; install carryon-proxy with its dependencies")
    return Path(places[0]) / "litellm_core_utils" / "tokenizers"
