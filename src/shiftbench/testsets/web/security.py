"""Security of the pages: session cookies, CSRF protection, rate limits, headers.

Sessions are random tokens, stored as hashes and sent in HttpOnly, SameSite=Strict cookies. Every form has a token that
belongs to the session. Only known host names are served, which defeats DNS rebinding. Requests must arrive in time.
Rate limits are counted per process. Wrong passwords are counted by the network they come from, by network and name, and
separately for browsers that have signed in before: nobody can lock out the owner of an account from elsewhere.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shiftbench.reports.page import server
from shiftbench.reports.page.server import host_name, is_loopback
from shiftbench.testsets.accounts import SESSION_DAYS
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.project import Project

#: An answer with 48 images has about 1.5 kB.
LARGEST_BODY = 64 << 10
_MOST_FIELDS, _MOST_KEYS, _DEVICE_SECONDS = 1000, 10_000, 365 * 86400
HEADERS = {
    **server.HEADERS,
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without any, browsers would send "Origin: null" with our own forms
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def loosen(response: Response, directive: str, *sites: str) -> None:
    """Let these sites receive the forms of one page ("form-action"), or show it in a frame ("frame-ancestors")."""
    allowed = f"{directive} {' '.join(sites)}"
    policy = HEADERS["Content-Security-Policy"]
    for closed in (f"{directive} 'self'", f"{directive} 'none'"):
        policy = policy.replace(closed, allowed)
    response.headers["Content-Security-Policy"] = policy
    if directive == "frame-ancestors":
        response.headers["X-Frame-Options"] = "ALLOWALL"


class ForgedFormError(NotAllowedError):
    """A form that was not sent by one of our pages."""


class TooManyError(WorkshopError):
    """Rate limit exceeded."""

    status = 429


class BodyTooLargeError(WorkshopError):
    """A request body without Content-Length exceeded the limit."""

    status = 413


class TooSlowError(WorkshopError):
    """A request body did not arrive in time."""

    status = 408


class Cookies:
    """Names of the cookies: the session of an account, a visitor who is not signed in, a device that was before."""

    def __init__(self, *, secure: bool) -> None:
        # Browsers restrict cookies with this prefix to HTTPS and to this host.
        prefix = "__Host-shiftbench" if secure else "shiftbench"
        self.secure = secure
        self.session, self.visitor, self.device = (f"{prefix}-{name}" for name in ("session", "visitor", "device"))

    def set(self, response: Response, name: str, value: str) -> None:
        seconds = {self.session: SESSION_DAYS * 86400, self.device: _DEVICE_SECONDS}.get(name)
        response.set_cookie(
            name, value, max_age=seconds, path="/", secure=self.secure, httponly=True, samesite="strict"
        )

    def end(self, response: Response) -> None:
        for name in (self.session, self.visitor):
            response.delete_cookie(name, path="/", secure=self.secure, httponly=True, samesite="strict")


def form_token(project: Project, holder: str) -> str:
    """The CSRF token of forms; ``holder`` is the session token or the visitor id."""
    return project.sign(f"form/{holder}").hex()


def device_mark(project: Project, name: str, nonce: str | None = None) -> str:
    """Proves that this browser has signed in to the account before; it is not a login."""
    nonce = nonce or secrets.token_urlsafe(12)
    return f"{nonce}.{project.sign(f'device/{nonce}/{name}').hex()}"


def is_known_device(project: Project, name: str, value: str) -> bool:
    expected = device_mark(project, name, value.partition(".")[0] or "none")
    return hmac.compare_digest(value.encode("utf-8", "replace"), expected.encode())


class Form:
    def __init__(self, body: bytes) -> None:
        try:
            text = body.decode("utf-8")
            self._fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise WorkshopError("invalid form", found=str(error)) from None
        if any("\0" in value for values in self._fields.values() for value in values):
            raise WorkshopError("invalid form", found="a NUL character", expected="text")

    def text(self, name: str, default: str = "") -> str:
        return self._fields.get(name, [default])[0].strip()

    def secret(self, name: str) -> str:
        """Not stripped: a password may start with a space."""
        return self._fields.get(name, [""])[0]

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])


async def read_form(request: Request, project: Project, holders: Iterable[str], origin: str) -> Form:
    """The form of a POST request, if it was sent by one of our pages in this session."""
    came_from = request.headers.get("origin")  # browsers send it with every POST request
    if came_from is not None and came_from != origin:
        raise ForgedFormError("this form was sent by another site", found=came_from[:80], expected=origin)
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ForgedFormError("this form was sent by another site")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise WorkshopError("invalid form", found=repr(kind[:60]), expected="a URL-encoded form without files")
    form = Form(await request.body())
    given = form.text("form").encode("utf-8", "replace")
    if not any(hmac.compare_digest(given, form_token(project, holder).encode()) for holder in holders):
        raise ForgedFormError("this form does not belong to your session", hint="reload the page and try again")
    return form


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


@dataclass
class Limit:
    """A token bucket per key: ``burst`` at once, then ``per_minute``."""

    burst: int
    per_minute: float
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str, count: int = 1) -> None:
        """With ``count=0``, check only: for attempts that count if they fail."""
        if not self.try_take(key, count):
            raise TooManyError("too many attempts", hint="wait a minute")

    def try_take(self, key: str, count: int = 1) -> bool:
        with self._turn:
            left = self._refilled(key)
            if left >= 1 and count:
                self._left[key] = (left - count, self.clock())
            return left >= 1

    def give_back(self, key: str) -> None:
        with self._turn:
            self._left[key] = (min(self.burst, self._refilled(key) + 1), self.clock())

    def _refilled(self, key: str) -> float:
        def amount(left: float, since: float) -> float:
            return min(self.burst, left + (self.clock() - since) * self.per_minute / 60)

        if len(self._left) >= _MOST_KEYS:  # bounds the memory if requests come from ever new addresses
            self._left = {k: v for k, v in self._left.items() if amount(*v) < self.burst}
            if len(self._left) >= _MOST_KEYS:
                self._left.clear()
        return amount(*self._left[key]) if key in self._left else float(self.burst)


@dataclass
class Limits:
    #: Failed sign-ins: by network, and by network and name; from browsers that have signed in before, by browser only.
    addresses: Limit = field(default_factory=lambda: Limit(10, 10))
    names: Limit = field(default_factory=lambda: Limit(10, 2))
    devices: Limit = field(default_factory=lambda: Limit(10, 2))
    #: Recruited people by network, of whom a lecture hall sends a hundred at once.
    recruits: Limit = field(default_factory=lambda: Limit(200, 60))
    #: Answers per annotator: nobody answers a grid in less than a second.
    answers: Limit = field(default_factory=lambda: Limit(60, 60))
    #: All other POST requests, per account.
    posts: Limit = field(default_factory=lambda: Limit(240, 240))
    #: Audit entries of refused requests, so that an attack cannot fill the disk.
    refusals: Limit = field(default_factory=lambda: Limit(200, 60))


@dataclass(frozen=True)
class KnownHosts:
    """The host names that the server answers to: this machine, the public URL, and the address it listens on.

    Bound to all networks it also answers to its own name and to IP addresses, which DNS rebinding cannot fake.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False

    @classmethod
    def of(cls, public_url: str | None = None, bound: str = "127.0.0.1") -> KnownHosts:
        names = {"localhost", "127.0.0.1", "::1", bound.lower(), urlsplit(public_url or "").hostname or ""} - {""}
        if is_loopback(bound):
            return cls(frozenset(names))
        return cls(frozenset({*names, socket.gethostname().lower(), socket.getfqdn().lower()}), any_address=True)

    def __contains__(self, host: str) -> bool:
        return host in self.names or (self.any_address and server.ip_address(host) is not None)


def network_of(address: str) -> str:
    """What one attacker controls: an IPv4 address, or the /64 network of an IPv6 address.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1"), network_of("unknown")
    ('192.0.2.7', '2001:db8::/64', 'unknown')
    """
    if (known := server.ip_address(address)) is None or known.version == 4:
        return address
    return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))


class SecurityMiddleware:
    """Refuses unknown hosts, and large request bodies without reading them; sets the headers of every response."""

    def __init__(self, app: ASGIApp, *, https: bool, hosts: KnownHosts) -> None:
        self._app, self._hosts = app, hosts
        given = {**HEADERS, "Strict-Transport-Security": "max-age=31536000"} if https else HEADERS
        self._headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in self._headers if one[0] not in present)]
            await send(message)

        given = dict(reversed(scope["headers"]))
        length, hosts = (
            given.get(b"content-length", b"0"),
            [value for name, value in scope["headers"] if name == b"host"],
        )
        if host_name(b",".join(hosts).decode("latin-1")) not in self._hosts:
            status, why = 421, "This server does not answer to that host name."
        elif "\0" in scope["path"] or b"%00" in scope["query_string"]:  # PostgreSQL stores no text with it
            status, why = 404, "Page not found."
        elif not length.isdigit() or int(length) > LARGEST_BODY:
            status, why = 413, "Request too large. Nothing was stored."
        else:
            await self._app(scope, _measured(receive), send_with_headers)
            return
        refusal = Response(f"{why}\n", status, {"Connection": "close"}, media_type="text/plain")
        await refusal(scope, receive, send_with_headers)


def _measured(receive: Receive) -> Receive:
    deadline = asyncio.get_running_loop().time() + server.BODY_SECONDS
    size, complete = 0, False

    async def measured() -> Message:
        nonlocal size, complete
        if complete:  # waits for the client to disconnect, which may take any time
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise TooSlowError("the request did not arrive in time") from None
        complete = not message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise BodyTooLargeError("request too large", expected=f"at most {LARGEST_BODY >> 10} kB")
        return message

    return measured
