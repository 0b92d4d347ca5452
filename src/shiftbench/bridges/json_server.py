"""Requests to a server that answers in JSON: what the loaders of served models share.

A request has a time limit. One that fails for a reason that may pass is repeated, with growing pauses. The server's key
comes from the environment, and is neither stored nor sent to another address.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException
from typing import IO
from urllib import error as url_errors
from urllib import request as url_requests
from urllib.parse import SplitResult, parse_qs

from shiftbench.errors import ClassifierError

#: The variable with the server's key; it is sent as a bearer token and stored nowhere.
TOKEN_VARIABLE = "SHIFTBENCH_SERVER_TOKEN"
_DEFAULT_TIMEOUT = 60.0
#: A request that fails for a reason that may pass is repeated this often, after 0.5, 1, 2 and 4 seconds.
_RETRIES = 4
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
#: Answers that say that the server is busy or starting, not that the request is wrong.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_MAX_ANSWER = 1 << 28
_MAX_ERROR = 1 << 16
_SHOWN_ERROR = 300


class RefusedRequestError(ClassifierError):
    """The server has answered that it does not do what was asked.

    Attributes:
        status: The number of the answer, such as 400.
        body: The beginning of its text.
    """

    def __init__(self, url: str, status: int, body: str) -> None:
        hint = None
        if status in (401, 403):
            hint = f"put the server's key into the environment variable {TOKEN_VARIABLE}"
        elif 300 <= status < 400:
            hint = "name the address that it refers to; redirects are not followed, because a key would go along"
        found = f"HTTP {status} {body[:_SHOWN_ERROR]}".strip()
        super().__init__(f"the server {url} refuses the request", found=found, hint=hint)
        self.status = status
        self.body = body


class JsonServer:
    """The requests to a server, with retries and a time limit each.

    Args:
        url: The address of a model, or of all models of a server.
        timeout: Seconds for one request.
    """

    #: What the server is expected to speak, for errors.
    protocol: str

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        #: Requests that were repeated, in this process.
        self.repeated = 0

    def answer(self, url: str, content: object = None) -> Mapping[str, object]:
        """The JSON object that the server answers, to a POST of the content if there is any.

        Raises:
            RefusedRequestError: The server refuses the request, or is still busy after several attempts.
            ClassifierError: The server does not answer, or answers something else.
        """
        data = None if content is None else json.dumps(content).encode()
        text = self._text(url, data)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise self.wrong("is not JSON", f"{text[:80]!r}") from problem
        if not isinstance(answer, dict):
            raise self.wrong("is not an object", type(answer).__name__)
        return answer

    def wrong(self, what: str, found: str) -> ClassifierError:
        """The error about an answer that does not follow the protocol."""
        return ClassifierError(f"the answer of {self.url} {what}", found=found, expected=self.protocol)

    def _text(self, url: str, data: bytes | None) -> bytes:
        """The body of an answer, after as many attempts as it needs."""
        pause = _FIRST_PAUSE
        for attempt in range(_RETRIES + 1):
            try:
                with _opener.open(self._request(url, data), timeout=self.timeout) as response:
                    body: bytes = response.read(_MAX_ANSWER)
                    return body
            except url_errors.HTTPError as problem:
                if problem.code not in _PASSING or attempt == _RETRIES:
                    text = problem.read(_MAX_ERROR).decode(errors="replace").strip()
                    raise RefusedRequestError(self.url, problem.code, text) from problem
                pause = max(pause, _stated_pause(problem.headers))
            except (OSError, HTTPException) as problem:
                if attempt == _RETRIES:
                    raise ClassifierError(
                        f"the server {self.url} does not answer",
                        found=f"{type(problem).__name__}: {problem}",
                        hint="is it running? timeout=SECONDS, an option behind the address, allows slower answers",
                    ) from problem
            self.repeated += 1
            time.sleep(min(pause, _LONGEST_PAUSE))
            pause *= 2
        raise AssertionError("every attempt returns or raises")

    def _request(self, url: str, data: bytes | None) -> url_requests.Request:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return url_requests.Request(url, data=data, headers=headers)


class _NoRedirects(url_requests.HTTPRedirectHandler):
    def redirect_request(
        self, req: url_requests.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


_opener = url_requests.build_opener(_NoRedirects)


def check_address(parts: SplitResult) -> None:
    """Raise ClassifierError if an address holds a name and a password."""
    if parts.username or parts.password:
        raise ClassifierError(
            "keys do not belong into an address", hint=f"use the environment variable {TOKEN_VARIABLE}"
        )


def address_options(parts: SplitResult, expected: Mapping[str, str]) -> dict[str, str]:
    """The options behind an address, ``?key=value&...``; ``expected`` has a word for the value of each key."""
    options = parse_qs(parts.query, keep_blank_values=True)
    unknown = [key for key in options if key not in expected]
    if unknown:
        raise ClassifierError(
            "unknown option of a served model",
            found=", ".join(unknown),
            expected=", ".join(f"{key}={value}" for key, value in expected.items()),
        )
    return {key: values[-1] for key, values in options.items()}


def stated_timeout(options: Mapping[str, str]) -> float:
    """The seconds that ``timeout=`` states, or the usual ones."""
    if "timeout" not in options:
        return _DEFAULT_TIMEOUT
    try:
        timeout = float(options["timeout"])
    except ValueError:
        timeout = 0.0
    if not 0 < timeout < 86_400:
        raise ClassifierError("invalid time limit", found=options["timeout"], expected="seconds, above 0")
    return timeout


def _stated_pause(headers: Message) -> float:
    """Seconds that the server asks to wait; 0 if it does not say."""
    try:
        return float(headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
