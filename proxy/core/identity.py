"""Whose conversation this is, and the digests that decide whether a surface applies (rule 4).

Normalisation is for digests only, never for forwarded bytes. Every field is framed by its length,
so that no two different lists of fields have the same digest.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from proxy.core.transcript import Transcript

__all__ = [
    "ANONYMOUS",
    "CREDENTIAL_HEADERS",
    "SCOPE_HEADERS",
    "canonical",
    "conversation",
    "covered_digests",
    "credentials",
    "framed",
    "is_key",
    "is_scope",
    "load_unique",
    "opaque",
    "scope",
    "tenant",
]

#: Headers that carry a conversation's id, first valid wins (observed on real clients).
SCOPE_HEADERS = (
    "x-carryon-scope",
    "x-session-id",
    "x-claude-code-session-id",
    "x-deepseek-harness-session-id",
    "x-opencode-session",
    "session_id",
    "agent-session-id",
    "x-task-id",
    "x-litellm-session-id",
    "x-session-affinity",
    "thread-id",
    "session-id",
)
_VISIBLE = re.compile(r"[\x21-\x7e]{1,256}")
#: The tenant of all who show nothing.
ANONYMOUS = "anonymous"
#: A percent-encoded byte of a URL.
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_OPENING = 3
_JWT_SECTIONS = 3
#: Headers that carry a caller's credential.
CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
#: The claims of a token that say whose it is.
_OWNER = ("iss", "sub")
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
#: Digits of a whole number that is kept as one.
_WHOLE_DIGITS = 18
#: Marks a number that is not kept as one; keys that begin with it get one more.
_MARK = "#"


def framed(fields: Iterable[str | bytes]) -> bytes:
    """SHA-256 (32 bytes) over the fields, each framed by its length in bytes."""
    found = hashlib.sha256()
    for field in fields:
        data = field if isinstance(field, bytes) else field.encode("utf-8", "surrogatepass")
        found.update(b"%d:" % len(data))
        found.update(data)
    return found.digest()


def load_unique(text: str | bytes) -> object:
    """Parse JSON for `canonical`, so that values are equal exactly where the JSON means the same.

    Numbers keep all their digits: one that is fractional or long becomes an object no JSON can spell.
    A key named twice, nesting too deep and what is not JSON are a ValueError.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_constant
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def canonical(value: object) -> str:
    """Dump a parsed value with sorted keys and no spaces, so that equal values have equal text.

    Nesting too deep is a ValueError.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def tenant(secret: bytes, identity: Sequence[str | bytes]) -> str:
    """The opaque tenant (32 hex digits) of an identity: HMAC-SHA256 under the secret; `anonymous` for none."""
    if not identity:
        return ANONYMOUS
    return hmac.new(secret, framed(identity), hashlib.sha256).hexdigest()[:32]


def credentials(
    headers: Sequence[tuple[str, str]], query: str, *, by: str, header: str | None = None
) -> tuple[str, ...]:
    """What identifies the caller under `tenant.by` (rule 4.1), empty for nobody. Names and values in full length.

    An empty header or credential is none: it is what clients and gateways send for nobody.
    """
    if by == "none":
        return ("none",)
    if by == "header":
        wanted = (header or "").lower()
        named = (value for name, value in headers if name.lower() == wanted and value.strip())
        return tuple(field for value in named for field in ("header", value))
    shown = [(name.lower(), value) for name, value in headers if name.lower() in CREDENTIAL_HEADERS and _says(value)]
    fields = (part.partition("=") for part in query.split("&"))
    shown += [("key", value) for name, _, value in fields if value and is_key(name)]
    tokens = (value[7:] for name, value in shown if name == "authorization" and value[:7].lower() == "bearer ")
    bearer = next(tokens, "")
    subject = _jwt_subject(bearer) if by == "jwt" else None
    return subject or tuple(field for pair in sorted(shown) for field in pair)


def _says(credential: str) -> bool:
    """Whether a credential is there at all: clients without a key send an empty one, or a scheme alone."""
    return credential.strip().lower() not in ("", "bearer", "basic")


def is_key(name: str) -> bool:
    """Whether a field of the query, by its name as sent, carries a credential."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), name) == "key"


def scope(headers: Mapping[str, str], ids: Sequence[str]) -> str:
    """The explicit conversation id a client sends, empty for none. `headers` have lower-case names."""
    named = (headers.get(name, "") for name in SCOPE_HEADERS)
    return next((value for value in (*named, *ids) if is_scope(value)), "")


def is_scope(value: str) -> bool:
    """Whether an id may be a scope: 1 to 256 visible ASCII characters."""
    return bool(_VISIBLE.fullmatch(value))


def conversation(*, tenant: str, upstream: str, dialect: str, scope: str, transcript: Transcript) -> str:
    """The ledger's key for this transcript, `<tenant>.<conversation>` (rule 4.2)."""
    opening = framed(transcript.digests[:_OPENING])
    return f"{tenant}.{framed((tenant, upstream, dialect, scope, opening)).hex()[:32]}"


def opaque(conversation: str) -> str:
    """A conversation's id as logs and headers name it: without the tenant."""
    return conversation.rpartition(".")[2]


def covered_digests(digests: Sequence[bytes], wanted: Iterable[int]) -> dict[int, bytes]:
    """For each wanted count of significant items, the digest that binds a surface to exactly those."""
    found: dict[int, bytes] = {}
    rolling, at = hashlib.sha256(b"carryon:covered:1"), 0
    for count in sorted(set(wanted)):
        if not 0 < count <= len(digests):
            continue
        rolling.update(b"".join(digests[at:count]))
        at = count
        found[count] = rolling.digest()
    return found


def _jwt_subject(token: str) -> tuple[str, ...] | None:
    """Issuer and subject of a bearer token, None where it is no JWT with both.

    The signature is the upstream's to check: a forger reaches only text it already holds.
    """
    sections = token.strip().split(".")
    if len(sections) != _JWT_SECTIONS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(sections[1] + "=" * (-len(sections[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    named = [claims.get(name) for name in _OWNER] if isinstance(claims, dict) else []
    texts = [value for value in named if isinstance(value, str) and value]
    return ("jwt", *texts) if len(texts) == len(_OWNER) else None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = {_MARK + key if key.startswith(_MARK) else key: value for key, value in pairs}
    if len(found) != len(pairs):
        raise ValueError("a key is named twice")
    return found


def _number(text: str) -> object:
    """A number by its digits: arithmetic would round it, and `1e999999` would take for ever."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError("not a number")
    sign, whole, fraction, exponent = found.groups(default="")
    digits = (whole + fraction).lstrip("0")
    bare = digits.rstrip("0")
    if not bare:
        return 0
    power = int(exponent or "0") - len(fraction) + len(digits) - len(bare)
    if 0 <= power <= _WHOLE_DIGITS - len(bare):
        return int(sign + bare + "0" * power)
    return {_MARK: f"{sign}{bare}e{power}"}


def _constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
