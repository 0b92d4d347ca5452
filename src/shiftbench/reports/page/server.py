"""The live viewer over HTTP: local unless configured otherwise, and read-only but for tags of images.

There is no login. Bound to loopback, the viewer answers only requests whose Host is this machine, which defeats DNS
rebinding. Bound elsewhere, a random token in the URL sets a cookie that authenticates the following requests. Tags are
accepted as JSON only, which no other site can send without asking first, and is never allowed to. Requests must arrive
in time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from shiftbench.errors import ShiftbenchError, argument
from shiftbench.reports.page.thumbnails import THUMBNAILS
from shiftbench.reports.page.viewer import TAGGING, TagChange, Viewer
from shiftbench.reports.page.write import LIVE_DATA, live_html, policy

_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
#: Headers of every answer, here and of the annotation pages.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: The browser then requests the URL without the token itself: a strict cookie is not sent when following a link.
_LET_IN = '<!doctype html><meta http-equiv="refresh" content="0; url=./"><title>shiftbench</title>'
_COOKIE = "shiftbench_viewer"
_COOKIE_DAYS = 30
#: Bytes of a request that tags an image.
_LARGEST_BODY = 10_000
#: Seconds for the headers of a request, and for its body.
HEADER_SECONDS = 15.0
_BODY_SECONDS = 30.0
#: Bytes of the headers of a request; a browser sends less than 2 kB.
LARGEST_HEADERS = 64 << 10

Next = Callable[[Request], Awaitable[Response]]


def viewer_app(viewer: Viewer, *, token: str | None = None) -> FastAPI:  # noqa: C901 (one short function per route)
    """The application; with ``token`` for remote readers, without for this machine only."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def guard(request: Request, call_next: Next) -> Response:
        response = _refused(request, token) or await call_next(request)
        response.headers.setdefault("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.get("/")
    def page() -> Response:
        return HTMLResponse(live_html(viewer.options.title))

    @app.get(f"/{LIVE_DATA}")
    def data(request: Request) -> Response:
        snapshot = viewer.snapshot()
        return _tagged(request, snapshot.etag, lambda: snapshot.body, "application/json", "private, no-cache")

    @app.get(f"/{THUMBNAILS}/{{name}}.webp")
    def thumbnail(request: Request, name: str) -> Response:
        image = viewer.thumbnail(name)
        if image is None:
            return PlainTextResponse("no such image", 404)
        # The name is a digest of the image's content, so a browser may keep it.
        return _tagged(request, f'"{name}"', lambda: image, "image/webp", "private, max-age=86400, immutable")

    @app.post(f"/{TAGGING}")
    async def tag(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("expected application/json", 415)
        body = b""
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > _LARGEST_BODY:
                        return PlainTextResponse("request too large", 413, {"Connection": "close"})
            tags = await run_in_threadpool(viewer.tag, msgspec.json.decode(body, type=TagChange))
            return Response(msgspec.json.encode(tags), media_type="application/json")
        except (TimeoutError, ClientDisconnect):
            return PlainTextResponse("the request did not arrive in time", 408, {"Connection": "close"})
        except (msgspec.DecodeError, ShiftbenchError) as error:
            return PlainTextResponse(str(error), 400)

    return app


def _tagged(request: Request, etag: str, body: Callable[[], bytes], kind: str, cache: str) -> Response:
    """The body, or 304 without it if the browser has this version already."""
    headers = {"ETag": etag, "Cache-Control": cache}
    cached_tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in cached_tags or "*" in cached_tags:
        return Response(status_code=304, headers=headers)
    return Response(body(), media_type=kind, headers=headers)


def _refused(request: Request, token: str | None) -> Response | None:
    """The answer to a request that is not allowed; None for one that is.

    On loopback the Host header must name this machine. Elsewhere a request needs the cookie, or the token in the URL,
    which sets the cookie.
    """
    if token is None:
        if host_name(",".join(request.headers.getlist("host"))) in _LOCAL_NAMES:
            return None
        return PlainTextResponse("this viewer answers only to localhost and 127.0.0.1", 421)
    if _same(request.cookies.get(_COOKIE, ""), token):
        return None
    if request.url.path == "/" and _same(request.query_params.get("token", ""), token):
        sealed = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
        answer = HTMLResponse(_LET_IN, headers=sealed)
        answer.set_cookie(_COOKIE, token, max_age=_COOKIE_DAYS * 86400, httponly=True, samesite="strict")
        return answer
    return PlainTextResponse("open the URL with the token that the viewer printed at start", 403)


def _same(given: str, token: str) -> bool:
    """Compare in constant time."""
    return secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())


def host_name(header: str) -> str:
    """A Host header without its port; empty for anything else.

    >>> host_name("localhost:8765"), host_name("[::1]:8765"), host_name("localhost:80@evil.example")
    ('localhost', '::1', '')
    """
    match = re.fullmatch(r"(?:\[([^]]*)\]|([^:]*))(?::\d*)?", header.strip().lower())
    if match is None:
        return ""
    return match[1] or match[2] or ""


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def is_loopback(host: str) -> bool:
    address = ip_address(host)
    if address is None:
        return host == "localhost"
    return address.is_loopback


def new_token() -> str:
    return secrets.token_urlsafe(24)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol named, asyncio sends small answers at once (TCP_NODELAY), not 40 ms later.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # so that the printed URL works at once
    except (OSError, OverflowError) as error:
        hint = f"choose another {argument('port')}, or {argument('port', 0)} for a free one"
        raise ShiftbenchError(f"can't listen on {host}, port {port}", found=str(error), hint=hint) from error
    return listener


class DeadlineProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes connections whose request headers do not arrive in time, or never end."""

    #: Closes the connection when it fires; None unless a request's headers are awaited.
    _timer: asyncio.TimerHandle | None = None
    #: Bytes that came since the headers of the last request were complete.
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self._idle():  # the first bytes of a further request
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        super().data_received(data)
        self._header_bytes += len(data)
        if not self._idle():  # The headers are complete, and the request is being answered.
            self._stop_timer()
        elif self._header_bytes > LARGEST_HEADERS:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        """Whether the connection waits for the headers of a request. Uvicorn has a ``cycle`` for each answered one."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _stop_timer(self) -> None:
        self._header_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def serve(app: FastAPI, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app, http=DeadlineProtocol, log_level="warning", access_log=False, server_header=False, date_header=False
    )
    uvicorn.Server(config).run(sockets=[listener])
