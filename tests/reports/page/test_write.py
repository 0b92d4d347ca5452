"""The file: complete in itself, and closed to whatever a name may hold."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.reports.page.payload import Page
from shiftbench.reports.page.report_data import empty_page
from shiftbench.reports.page.write import live_html, page_html, page_json, write_page
from tests.raised import raises
from tests.reports.page.making import page_of, read_published, results_of

NASTY = "</script><script>alert(1)</script>\"'`<!--{{script}}{{payload}}&amp;\u2028é"


@pytest.fixture
def nasty(tmp_path: Path) -> Page:
    name = NASTY.replace('"', '""')
    (tmp_path / "results.csv").write_text(f'model,val,v2\n"{name}",76.1,63.3\nb,56.5,44\n')
    return page_of(None, read_published(tmp_path / "results.csv"), title=NASTY)


def embedded(text: str) -> Page:
    """What a browser reads out of the data element: everything up to the first closing tag."""
    inside = text.split('<script type="application/json" id="payload">', 1)[1].split("</script", 1)[0]
    page: Page = json.loads(inside)
    return page


def test_no_name_breaks_out(nasty: Page) -> None:
    text = page_html(nasty).decode()
    assert embedded(text) == json.loads(page_json(nasty))
    assert results_of(nasty)["models"][0]["name"] == NASTY
    assert "<script>alert" not in text and text.count("<script") == 2 and text.count("</script>") == 2
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
    assert title is not None and html.unescape(title[1]) == NASTY


def test_the_policy_allows_exactly_what_is_inside(nasty: Page) -> None:
    text = page_html(nasty).decode()
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    policy = dict(part.strip().split(" ", 1) for part in html.unescape(found[1]).split(";"))
    style, script = (_between(text, f"<{tag}>", f"</{close}>") for tag, close in _ELEMENTS)
    assert policy == {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "style-src": _hash(style),
        "script-src": _hash(script),
    }


_ELEMENTS = (("style", "style"), ('script type="module"', "script"))


def _between(text: str, start: str, end: str) -> str:
    return text.split(start, 1)[1].split(end, 1)[0]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_nothing_is_fetched(nasty: Page) -> None:
    text = page_html(nasty).decode()
    shell = text.replace(text.split('id="payload">', 1)[1].split("</script", 1)[0], "")
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", shell) and "@import" not in shell
    assert not re.search(r"^import ", shell, re.MULTILINE) and not re.search(r"^export ", shell, re.MULTILINE)


def test_every_placeholder_is_filled() -> None:
    text = page_html(empty_page("plain")).decode()
    assert not re.search(r"\{\{(?:title|csp|style|script|payload)\}\}", text)


def test_the_live_page_asks_for_its_data() -> None:
    text = live_html("live").decode()
    assert '<html data-live="payload.json" lang="en">' in text
    assert '<script type="application/json" id="payload">null<' in text
    assert "connect-src" in text and "img-src &#x27;self&#x27; data:" in text


def test_a_nan_is_refused() -> None:
    page = empty_page("nan")
    page["sections"]["training"] = [{"name": "run", "steps": [1.0], "series": {"loss": [float("nan")]}}]
    with pytest.raises(ValueError, match="JSON compliant"):
        page_json(page)


def test_names_that_are_no_text_are_written(tmp_path: Path) -> None:
    """File names on disk may hold any bytes; Python reads them as lone surrogates."""
    page = empty_page("odd \udcff name")
    size = write_page(tmp_path / "odd.html", page)
    assert size == (tmp_path / "odd.html").stat().st_size
    assert embedded((tmp_path / "odd.html").read_text("utf-8"))["title"] == "odd ? name"


def test_a_report_is_an_html_file(tmp_path: Path) -> None:
    page = empty_page("x")
    with raises(ShiftbenchError, found="results.csv"):
        write_page(tmp_path / "results.csv", page)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ShiftbenchError, match="a folder at"):
        write_page(tmp_path / "folder.html", page)
    write_page(tmp_path / "new" / "deep" / "report.html", page)
    assert [path.name for path in (tmp_path / "new" / "deep").iterdir()] == ["report.html"]
