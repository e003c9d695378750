"""How what is stored is sealed: AES-256-GCM, bound to where it lies (rule 5.8)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from proxy.core.identity import framed

__all__ = ["Seals"]

_INFO = b"carryon surface 2"
_NONCE = 12


class Seals:
    """The keys, each derived from a secret: the first seals, all open.

    A seal costs a nonce of 12 bytes, drawn at random, and a tag of 16. One key is good for 2**32 seals.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        """Derive a key of 32 bytes from each secret; there is at least one."""
        self._keys = tuple(AESGCM(_derived(secret)) for secret in secrets)

    def seal(self, data: bytes, bound: Sequence[str | bytes]) -> bytes:
        """Return the data sealed; it opens only with the same `bound`."""
        nonce = os.urandom(_NONCE)
        return nonce + self._keys[0].encrypt(nonce, data, framed(bound))

    def open(self, sealed: bytes, bound: Sequence[str | bytes]) -> bytes | None:
        """Return the data, None where no key opens it or it was sealed for another place."""
        nonce, rest, place = sealed[:_NONCE], sealed[_NONCE:], framed(bound)
        if len(nonce) < _NONCE:
            return None
        for key in self._keys:
            try:
                return key.decrypt(nonce, rest, place)
            except InvalidTag:
                continue
        return None


def _derived(secret: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_INFO).derive(secret)
