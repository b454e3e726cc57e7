"""Run the application with uvicorn: sockets, logs, time-outs and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from contiformer.data.errors import DataError
from contiformer.serving.limits import Limits


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address.

    Example:
        >>> from contiformer.serving.server import is_loopback
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
        (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that a port in use is told before models are loaded.

    Raises:
        DataError: the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        remedy = "choose another with --port, or stop the program that has it" if taken else "choose another --host"
        raise DataError(f"cannot listen on {host}, port {port}: {error.strerror}", remedy=remedy) from None
    return bound


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request does not come, or whose answer is not taken, in time.

    uvicorn's own time-out is for connections between two requests only; bodies are timed by
    :class:`~contiformer.serving.guards.BoundedBodies`.
    """

    #: Set by :func:`answer_requests`.
    limits = Limits()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, or no longer."""
        super().data_received(data)
        self._watch_head()

    def _watch_head(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        elif not answering and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client takes its answer too slowly: wait for it, but not for ever."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken enough."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        super().connection_lost(exc)
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()


def answer_requests(app: FastAPI, bound: socket.socket, limits: Limits) -> None:
    """Answer requests until SIGTERM or Ctrl-C; requests that have begun are answered first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for name, level in (("contiformer.serving", logging.INFO), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    config = uvicorn.Config(
        app,
        http=type("Protocol", (ImpatientProtocol,), {"limits": limits}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=max(5, int(limits.head_seconds)),
        timeout_graceful_shutdown=int(limits.deadline) + 1,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal that ended it once more: to be asked to end is no failure
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[bound])
