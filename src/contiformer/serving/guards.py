"""Checks of every request before any endpoint sees it, and a line in the log and the metrics after it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contiformer.serving.errors import ServingError, answer_to, problem
from contiformer.serving.limits import Limits
from contiformer.serving.metrics import Metrics

access = logging.getLogger("contiformer.serving.access")
#: Names under which a server on the loopback interface is called; another is a page that had its name point here.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Answered without a token: a load balancer has none.
OPEN = ("/health",)
#: Scripts and styles come from the server itself, nothing from elsewhere, and no page may frame it.
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Observed:
    """The outermost layer: headers of every answer, a line of the log, metrics, and a 500 where all else failed.

    The line has the method, the route, the status and the time; neither the query nor the names of streams.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, observed)
        except Exception as error:
            answer = answer_to(error)
            if status:
                raise
            await answer(scope, receive, observed)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "(other)"
        self.metrics.requests.add(route=route, status=str(status))
        self.metrics.seconds.observe(seconds, route=route)
        if status >= 400 or not status:
            self.metrics.errors.add(route=route, status=str(status))
        access.info("%s %s %s %.1f ms", _method(scope), route, status or "aborted", 1000 * seconds)


def _method(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")
    return scope["method"] if scope["method"] in known else "(other)"


class Guarded:
    """Host, origin and token of a request; only then the application.

    Args:
        app: the application.
        hosts: names in the header Host that are answered; None: any.
        token: that has to be in the header Authorization, as a bearer token or as the password of basic authentication,
            which browsers ask for; None: none.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None, token: str | None) -> None:
        self.app, self.hosts = app, hosts
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (self.app if refused is None else refused)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and _name_in(host) not in self.hosts:
            return problem(421, f"this server is called {' or '.join(self.hosts)}; see --host")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return problem(403, "requests from pages of other sites are refused")
        if self.token is None or scope["path"] in OPEN:
            return None
        if not hmac.compare_digest(_given_token(headers), self.token):
            challenge = 'Basic realm="contiformer", charset="UTF-8"'
            return problem(401, "the token is missing or wrong", headers={"WWW-Authenticate": challenge})
        return None


def _name_in(host: str) -> str:
    """The host without its port, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _given_token(headers: Mapping[str, str]) -> bytes:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


class BoundedBodies:
    """Bodies that are too large, too slow or compressed are refused while they are read, not after.

    Args:
        app: the application.
        limits: of one body, of all together, and of seconds.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_head(headers)
        except ServingError as error:
            await answer_to(error)(scope, receive, send)
            return
        taken = 0
        ends = time.monotonic() + self.limits.body_seconds
        whole = False

        async def bounded() -> Message:
            nonlocal taken, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
            except TimeoutError:
                raise ServingError(
                    408, f"the body took more than {self.limits.body_seconds:g} seconds to arrive"
                ) from None
            size = len(message.get("body", b""))
            taken += size
            self._held += size
            if taken > self.limits.body_bytes:
                raise self._too_large()
            if self._held > self.limits.waiting_bytes:
                raise ServingError(503, "the waiting requests hold too many bytes: try again later", retry_after=1)
            whole = not message.get("more_body", False)
            return message

        try:
            await self.app(scope, bounded, send)
        finally:
            self._held -= taken

    def _check_head(self, headers: Mapping[str, str]) -> None:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ServingError(415, "compressed bodies are refused: send it as it is")
        length = headers.get("content-length", "0")
        if length.isdigit() and len(length) < 20 and int(length) <= self.limits.body_bytes:
            return
        raise self._too_large()

    def _too_large(self) -> ServingError:
        return ServingError(413, f"the body has more than {self.limits.body_bytes:,} bytes: send several requests")
