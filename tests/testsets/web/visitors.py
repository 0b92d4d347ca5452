"""People at the pages, without a browser: they read forms off pages and send them, as a browser would."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import unescape
from types import TracebackType

import httpx

Fields = Mapping[str, str | list[str]]
#: Words with nothing but tags between them.
RUN_TOGETHER = re.compile(r"\w+[.,;:]?(?:</?(?:a|b|code|em|small|span|strong)\b[^>]*>)+[A-Za-z]\w+")


@dataclass(frozen=True)
class Sheet:
    """A page that was answered."""

    status: int
    text: str
    headers: httpx.Headers

    @property
    def form(self) -> str:
        return self._one(r'name="form" value="([0-9a-f]+)"')

    @property
    def task(self) -> str:
        return self._one(r'action="/tasks/([\w-]+)/(?:check|answer)"')

    @property
    def images(self) -> list[str]:
        return re.findall(r'name="image" value="([\w-]+)"', self.text)

    @property
    def shown(self) -> list[str]:
        """The images of a grid in which a class is chosen for each."""
        return re.findall(r'name="shown" value="([\w-]+)"', self.text)

    @property
    def class_name(self) -> str:
        return unescape(self._one(r"<em>(.*?)</em>"))

    @property
    def page(self) -> str:
        """The template it was made from."""
        return self._one(r'data-page="(\w+)"')

    @property
    def error(self) -> str:
        """The class of the error that it shows."""
        return self._one(r'data-error="(\w+)"')

    @property
    def is_grid(self) -> bool:
        return 'id="review"' in self.text

    def _one(self, pattern: str) -> str:
        match = re.search(pattern, self.text)
        assert match, (pattern, self.status, self.text[-900:])
        return match.group(1)


class Visitor:
    """One person with cookies of their own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.http = httpx.Client(base_url=address, timeout=300, headers={"Origin": address})
        self.sheet = Sheet(0, "", httpx.Headers())
        #: Of the last page that had a form: what the next form brings back.
        self.form = ""

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self.http.close()

    def get(self, path: str) -> Sheet:
        return self._keep(self.http.get(path))

    def post(self, path: str, fields: Fields | None = None, *, form: str | None = None, **headers: str) -> Sheet:
        """With the token of the last page, unless another is given; "" sends none."""
        token = self.form if form is None else form
        data = {**(fields or {}), **({"form": token} if token else {})}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._keep(self.http.post(path, data=data, headers=sent))

    def follow(self) -> Sheet:
        assert self.sheet.status == 303, (self.sheet.status, self.sheet.text)
        return self.get(self.sheet.headers["location"])

    def join(self, token: str) -> Sheet:
        self.get(f"/join/{token}")
        self.post("/join", {"token": token})
        return self.follow()

    def answer(self, selected: Iterable[str], *, task: str | None = None) -> Sheet:
        """Straight from the grid."""
        images = list(selected)
        fields: Fields = {"image": images} if images else {"none": "1"}
        return self.post(f"/tasks/{task or self.sheet.task}/answer", fields)

    def work(self, choose: Callable[[Sheet], Iterable[str]], most: int = 10_000) -> int:
        """All steps, as people take them, until nothing is left; how many answers."""
        for done in range(most):
            grid = self.get("/task")
            if not grid.is_grid:
                return done
            selected = list(choose(grid))
            second = self.post(f"/tasks/{grid.task}/check", {"image": selected} if selected else {"none": "1"})
            assert second.status == 200 and second.images == [image for image in grid.images if image in selected]
            assert self.answer(second.images, task=grid.task).status == 303
        return most

    def _keep(self, response: httpx.Response) -> Sheet:
        sheet = Sheet(response.status_code, response.text, response.headers)
        if 'name="form"' in sheet.text:
            self.form = sheet.form
        if "text/html" in sheet.headers.get("content-type", "") or sheet.status == 303:
            self.sheet = sheet
            joined = RUN_TOGETHER.search(sheet.text)
            assert joined is None, f"words run together: {joined[0] if joined else ''}"
        return sheet
