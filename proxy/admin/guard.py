"""Who may see more than probes and metrics on the admin listener (rule 13.4). Pure.

Three questions, in this order. Is the request for this listener: a page elsewhere can make a browser send requests
here, under a name of its own that it points at this address, but it cannot choose `Host` and `Origin`. Then: is it
from a page of ours. Then: is it from somebody who knows the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from proxy.errors import Answer
from proxy.message import Headers, values, wire
from proxy.settings.rules import is_loopback
from proxy.settings.shape import Admin

__all__ = ["Guard"]

FOREIGN_HOST = Answer(
    status=403,
    code="PROXY_FORBIDDEN",
    message="This Host is not known here: add the name to admin.hosts, or use the listener's address.",
)
FOREIGN_ORIGIN = Answer(status=403, code="PROXY_FORBIDDEN", message="A page of another origin may not ask here.")
CLOSED = Answer(
    status=403,
    code="PROXY_FORBIDDEN",
    message="Off loopback this needs a token: set admin.token, or admin.host: 127.0.0.1. Probes and metrics need none.",
)
NO_TOKEN = Answer(
    status=401,
    code="PROXY_UNAUTHORIZED",
    message="This needs the header Authorization: Bearer, with the value of admin.token.",
    headers=(("WWW-Authenticate", 'Bearer realm="carryon"'),),
)
_PORT = re.compile(r":[0-9]{0,5}")
#: The ports that a scheme has anyway: some clients write them, others do not.
_USUAL = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Decides by `admin.host`, `admin.hosts` and `admin.token`; a token that is set is wanted on loopback as well."""

    host: str
    hosts: Sequence[str] = ()
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, admin: Admin) -> Guard:
        """Return the guard that the configuration asks for."""
        token = admin.token.get_secret_value() if admin.token else None
        return cls(host=admin.host, hosts=admin.hosts, token=token)

    @property
    def closed(self) -> bool:
        """Whether nobody is let through: others reach the listener, and no token tells them apart."""
        return self.token is None and not is_loopback(self.host)

    def refusal(self, headers: Headers) -> Answer | None:
        """Return why a request is refused, None where it may be answered."""
        hosts, origins = values(headers, "host"), values(headers, "origin")
        if len(hosts) != 1 or not self._knows(_name(hosts[0])):
            return FOREIGN_HOST
        if not all(_is_ours(origin, hosts[0]) for origin in origins):
            return FOREIGN_ORIGIN
        if self.closed:
            return CLOSED
        return None if self.token is None or _shows(headers, self.token) else NO_TOKEN

    def _knows(self, name: str | None) -> bool:
        """Whether a name or address means this listener. No page can make a browser send an address it is not at."""
        if name is None:
            return False
        if is_loopback(name) or name in {known.lower().removesuffix(".") for known in (self.host, *self.hosts)}:
            return True
        ours, asked = _address(self.host), _address(name)
        return asked is not None and ours is not None and (ours.is_unspecified or ours == asked)


def _shows(headers: Headers, token: str) -> bool:
    shown = [value for value in values(headers, "authorization") if value[:7].lower() == "bearer "]
    return len(shown) == 1 and hmac.compare_digest(wire(shown[0][7:].strip()), token.encode())


def _name(host: str) -> str | None:
    """Return name or address of a `Host` header in small letters, None where it is none."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or _PORT.fullmatch(port)) and _address(name) else None
    name, colon, port = host.partition(":")
    return name.removesuffix(".") if not colon or _PORT.fullmatch(colon + port) else None


def _is_ours(origin: str, host: str) -> bool:
    """Whether an `Origin` is the one that was asked: a page of another port is a page of somebody else."""
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return False
    port = _USUAL.get(parts.scheme)
    if port is None or origin.strip().lower() != f"{parts.scheme}://{parts.netloc}":  # `null`, or no origin at all
        return False
    return parts.netloc.removesuffix(port) == host.strip().lower().removesuffix(port)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
