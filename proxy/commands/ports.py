"""The ports of `carryon serve`: what it means that one cannot be had, and sockets that several workers listen on."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from proxy.errors import ConfigError, Mistake

__all__ = ["Bound", "bound", "cannot_listen"]

#: What may be chosen otherwise, by listener.
_PORT = {"listen": "--port, or CARRYON_LISTEN__PORT", "admin": "CARRYON_ADMIN__PORT"}
_HOST = {"listen": "--host, or CARRYON_LISTEN__HOST", "admin": "CARRYON_ADMIN__HOST"}


def cannot_listen(error: OSError, key: str, host: str, port: int) -> ConfigError:
    """Say what stands in the way of a listener, `listen` or `admin`, and what may be chosen instead."""
    taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
    cure = (
        f"end what listens there, or choose another port (0 takes a free one): {_PORT[key]}"
        if taken
        else f"choose an address of this machine: {_HOST[key]}"
    )
    number = error.errno or 0  # that of a name which cannot be resolved is negative
    why = os.strerror(number) if number > 0 else error.strerror or str(error)
    message = f"cannot listen on {host}:{port}: {why[:1].lower()}{why[1:]}"
    return ConfigError(Mistake(key=f"{key}.{'port' if taken else 'host'}", message=message, cure=cure))


class Bound:
    """An address that several processes listen on, each with sockets of its own, between which the kernel divides.

    A socket outlives the process that listened on it: what the kernel has accepted for a worker that died waits for
    the next one. None listens before its process does.
    """

    def __init__(self, addresses: Sequence[tuple[socket.AddressFamily, tuple[str | int, ...]]], shares: int) -> None:
        """Take the addresses. Raises `OSError`, also where another program of the same user shares its ports."""
        self._addresses: list[tuple[socket.AddressFamily, tuple[str | int, ...]]] = []
        with ExitStack() as probes:  # all at once: a free port must be free for each family
            port = 0
            for family, (host, wanted, *more) in addresses:
                probe = probes.enter_context(_socket(family, (host, wanted or port, *more), shared=False))
                port = int(probe.getsockname()[1])
                self._addresses.append((family, (host, port, *more)))
        self.port = port
        self.shares: list[list[socket.socket]] = []
        for _ in range(shares):
            self.shares.append(self._share())

    def _share(self) -> list[socket.socket]:
        return [_socket(family, address, shared=True) for family, address in self._addresses]

    def renew(self, index: int) -> None:
        """Take the sockets of one process anew, where they were closed."""
        if not self.shares[index]:
            self.shares[index] = self._share()

    def close(self, index: int) -> None:
        """Close the sockets of one process here: nobody is sent to it unless it holds them itself."""
        for one in self.shares[index]:
            one.close()
        self.shares[index] = []

    def keep(self, index: int) -> list[socket.socket]:
        """Return the sockets of one process and close all others: for that process."""
        for other in range(len(self.shares)):
            if other != index:
                self.close(other)
        return self.shares[index]


def bound(key: str, host: str, port: int, shares: int) -> Bound:
    """Take an address for so many processes. Raises `ConfigError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return Bound([(family, address) for family, _, _, _, address in dict.fromkeys(found)], shares)
    except OSError as error:
        raise cannot_listen(error, key, host, port) from error


def _socket(family: socket.AddressFamily, address: tuple[str | int, ...], *, shared: bool) -> socket.socket:
    """Bind a socket; one that is not shared is refused wherever anybody listens."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
