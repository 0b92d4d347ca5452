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

from shiftbench.extend import web as server
from shiftbench.extend.web import host_name, is_loopback
from shiftbench.testsets.accounts import SESSION_DAYS
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.project import Project

#: An answer with 48 images has about 1.5 kB.
LARGEST_BODY = 64 << 10
#: Seconds for the body of a request.
_BODY_SECONDS = 30.0
#: Fields of a form.
_MOST_FIELDS = 1000
#: Keys that a rate limit remembers.
_MOST_KEYS = 10_000
_DAY_SECONDS = 86400
#: How long a browser remembers that it has signed in.
_DEVICE_SECONDS = 365 * _DAY_SECONDS
HEADERS = {
    **server.HEADERS,
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # Without a policy, browsers would send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
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
    """Names of the cookies: the session of an account, a visitor who is not signed in, a device that was before, and
    the browser that accounts of recruited workers are bound to."""

    def __init__(self, *, secure: bool) -> None:
        # Browsers restrict cookies with this prefix to HTTPS and to this host.
        prefix = "__Host-shiftbench" if secure else "shiftbench"
        self.secure = secure
        self.session = f"{prefix}-session"
        self.visitor = f"{prefix}-visitor"
        self.device = f"{prefix}-device"
        self.browser = f"{prefix}-browser"

    def set(self, response: Response, name: str, value: str) -> None:
        """Set a cookie for as long as its kind lasts; that of a visitor ends with the browser."""
        lifetimes = {
            self.session: SESSION_DAYS * _DAY_SECONDS,
            self.device: _DEVICE_SECONDS,
            self.browser: _DEVICE_SECONDS,
        }
        response.set_cookie(
            name,
            value,
            max_age=lifetimes.get(name),
            path="/",
            secure=self.secure,
            httponly=True,
            # Workers come by a link of their platform: a strict cookie would not be sent, and would be replaced.
            samesite="lax" if name == self.browser else "strict",
        )

    def end(self, response: Response) -> None:
        """Delete the cookies of a session; the device stays known."""
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
    """Whether a cookie is a :func:`device_mark` of this account."""
    nonce = value.partition(".")[0] or "none"
    expected = device_mark(project, name, nonce)
    return hmac.compare_digest(value.encode("utf-8", "replace"), expected.encode())


class Form:
    """The fields of a URL-encoded form; raises WorkshopError if it cannot be read."""

    def __init__(self, body: bytes) -> None:
        try:
            text = body.decode("utf-8")
            self._fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise WorkshopError("invalid form", found=str(error)) from None
        for values in self._fields.values():
            if any("\0" in value for value in values):
                raise WorkshopError("invalid form", found="a NUL character", expected="text")

    def text(self, name: str, default: str = "") -> str:
        """The first value of a field, without spaces around it."""
        return self._fields.get(name, [default])[0].strip()

    def secret(self, name: str) -> str:
        """Not stripped: a password may start with a space."""
        return self._fields.get(name, [""])[0]

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])


async def read_form(request: Request, project: Project, holders: Iterable[str], origin: str) -> Form:
    """The form of a POST request, if it was sent by one of our pages in this session."""
    # Browsers send their origin with every POST request; other programs need not.
    sent_from = request.headers.get("origin")
    if sent_from is not None and sent_from != origin:
        raise ForgedFormError("this form was sent by another site", found=sent_from[:80], expected=origin)
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ForgedFormError("this form was sent by another site")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise WorkshopError("invalid form", found=repr(content_type[:60]), expected="a URL-encoded form without files")
    form = Form(await request.body())
    token = form.text("form").encode("utf-8", "replace")
    if not any(hmac.compare_digest(token, form_token(project, holder).encode()) for holder in holders):
        raise ForgedFormError("this form does not belong to your session", hint="reload the page and try again")
    return form


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


@dataclass
class Limit:
    """A token bucket per key: ``burst`` at once, then ``per_minute``."""

    burst: int
    per_minute: float
    clock: Callable[[], float] = time.monotonic
    #: For each key: how many tokens were left, and when.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str, count: int = 1) -> None:
        """With ``count=0``, check only: for attempts that count if they fail."""
        if not self.try_take(key, count):
            raise TooManyError("too many attempts", hint="wait a minute")

    def try_take(self, key: str, count: int = 1) -> bool:
        """As :meth:`take`; False instead of an error."""
        with self._turn:
            left = self._refilled(key)
            if left >= 1 and count:
                self._left[key] = (left - count, self.clock())
            return left >= 1

    def give_back(self, key: str) -> None:
        with self._turn:
            self._left[key] = (min(self.burst, self._refilled(key) + 1), self.clock())

    def _refilled(self, key: str) -> float:
        """How many tokens a key has now."""
        if len(self._left) >= _MOST_KEYS:
            self._forget_full_buckets()
        if key not in self._left:
            return float(self.burst)
        return self._amount(key)

    def _forget_full_buckets(self) -> None:
        """Bound the memory: requests may come from ever new addresses.

        A key that is not stored has a full bucket, so that full ones can go. If few are full, all of them go, because a
        limit that is forgotten once does less harm than a server that runs out of memory.
        """
        for key in list(self._left):
            if self._amount(key) >= self.burst:
                del self._left[key]
        if len(self._left) >= _MOST_KEYS:
            self._left.clear()

    def _amount(self, key: str) -> float:
        left, since = self._left[key]
        return min(self.burst, left + (self.clock() - since) * self.per_minute / 60)


@dataclass
class Limits:
    """The rate limits of the pages."""

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
        names = {"localhost", "127.0.0.1", "::1", bound.lower()}
        names.add(urlsplit(public_url or "").hostname or "")
        names.discard("")
        if is_loopback(bound):
            return cls(frozenset(names))
        names.add(socket.gethostname().lower())
        names.add(socket.getfqdn().lower())
        return cls(frozenset(names), any_address=True)

    def __contains__(self, host: str) -> bool:
        return host in self.names or (self.any_address and server.ip_address(host) is not None)


def network_of(address: str) -> str:
    """What one attacker controls: an IPv4 address, or the /64 network of an IPv6 address.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1"), network_of("unknown")
    ('192.0.2.7', '2001:db8::/64', 'unknown')
    """
    parsed = server.ip_address(address)
    if parsed is None or parsed.version == 4:
        return address
    return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))


class SecurityMiddleware:
    """Refuses unknown hosts, and large request bodies without reading them; sets the headers of every response."""

    def __init__(self, app: ASGIApp, *, https: bool, hosts: KnownHosts) -> None:
        self._app = app
        self._hosts = hosts
        headers = dict(HEADERS)
        if https:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = [(name, value) for name, value in self._headers if name not in present]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, _measured(receive), send_with_headers)
        else:
            await refusal(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that must not reach the application; None if it may."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        # The first of several headers counts.
        length = dict(reversed(scope["headers"])).get(b"content-length", b"0")
        if host_name(b",".join(hosts).decode("latin-1")) not in self._hosts:
            return _refusal(421, "This server does not answer to that host name.")
        # PostgreSQL stores no text with a NUL character.
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return _refusal(404, "Page not found.")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _refusal(413, "Request too large. Nothing was stored.")
        return None


def _refusal(status: int, reason: str) -> Response:
    return Response(f"{reason}\n", status, {"Connection": "close"}, media_type="text/plain")


def _measured(receive: Receive) -> Receive:
    """The messages of a request, as long as its body arrives in time and is not too large."""
    deadline = asyncio.get_running_loop().time() + _BODY_SECONDS
    size = 0
    complete = False

    async def measured() -> Message:
        nonlocal size, complete
        # After the body, this waits for the client to disconnect, which may take any time.
        if complete:
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
