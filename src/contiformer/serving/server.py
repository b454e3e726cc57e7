"""Run the application with uvicorn: sockets, logs, time-outs and a graceful end."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys

import uvicorn
from fastapi import FastAPI

from contiformer.data.errors import DataError
from contiformer.serving.limits import Limits


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, before the models are loaded.

    Raises:
        DataError: the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        remedy = "choose another with --port, or stop the program that has it" if error.errno == 98 else "see --host"
        raise DataError(f"cannot listen on {host}, port {port} ({error.strerror})", remedy=remedy) from None
    return bound


def answer_requests(app: FastAPI, bound: socket.socket, limits: Limits) -> None:
    """Answer requests until SIGTERM or Ctrl-C; requests that have begun are answered first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for name in ("contiformer.serving", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "contiformer.serving" else logging.WARNING)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        ws="none",
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(limits.head_seconds),
        timeout_graceful_shutdown=int(limits.deadline) + 1,
    )
    uvicorn.Server(config).run(sockets=[bound])
