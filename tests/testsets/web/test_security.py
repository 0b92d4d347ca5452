"""Who may do what, and what is refused: roles, forged forms, forged addresses, floods, secrets."""

from __future__ import annotations

import contextlib
import re
import socket
from itertools import takewhile

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from shiftbench.testsets.accounts import create_account, enter_by_link, exclude, invite, leave, person_of_session
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.errors import DatabaseUnreachableError
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.revisions import sample, set_names
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.web.app import shielded, workshop_app
from shiftbench.testsets.web.security import LARGEST_BODY, KnownHosts, Limit, TooManyError
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, fill, work
from tests.testsets.web.conftest import Site, database_url, served
from tests.testsets.web.visitors import Visitor

pytestmark = pytest.mark.reliability("page attacks")
FORM = "application/x-www-form-urlencoded"

ROLES = ("nobody", "annotator", "reviewer", "lead")
EVERYBODY = set(ROLES)
SIGNED_IN = {"annotator", "reviewer", "lead"}
ANNOTATORS = {"annotator", "lead"}
REVIEWERS = {"reviewer", "lead"}
LEADS = {"lead"}
#: Every address of the application, and to whom it opens.
ACCESS = {
    "GET /": EVERYBODY,
    "GET /join/{token}": EVERYBODY,
    "POST /join": EVERYBODY,
    "GET /login": EVERYBODY,
    "GET /recruit/{token}": EVERYBODY,
    "POST /recruit/{token}": EVERYBODY,
    "POST /login": EVERYBODY,
    "POST /logout": EVERYBODY,
    "GET /static/{name}": EVERYBODY,
    "GET /favicon.ico": EVERYBODY,
    "GET /account": SIGNED_IN,
    "POST /account/password": SIGNED_IN,
    "GET /task": ANNOTATORS,
    "POST /tasks/{task}": ANNOTATORS,
    "POST /tasks/{task}/check": ANNOTATORS,
    "POST /tasks/{task}/answer": ANNOTATORS,
    "POST /tasks/{task}/return": ANNOTATORS,
    "POST /tasks/{task}/renew": ANNOTATORS,
    "POST /finish": ANNOTATORS,
    "POST /tasks/{task}/undo": ANNOTATORS,
    "GET /tasks/{task}/images/{image}": ANNOTATORS,
    "GET /lead": LEADS,
    "POST /lead/invitations": LEADS,
    "POST /lead/invitations/{invitation}/revoke": LEADS,
    "POST /lead/accounts/{account}/exclude": LEADS,
    "POST /lead/accounts/{account}/readmit": LEADS,
    "POST /lead/accounts/{account}/release": LEADS,
    "GET /lead/frequencies": LEADS,
    "GET /lead/frequencies.{kind}": LEADS,
    "GET /lead/log": LEADS,
    "GET /lead/annotators/{account}": LEADS,
    "GET /lead/answers.{kind}": LEADS,
    "GET /lead/workers.{kind}": LEADS,
    "GET /review/marks": REVIEWERS,
    "POST /review/marks/{mark_id}/withdraw": REVIEWERS,
    "GET /review/keywords": REVIEWERS,
    "GET /review/keywords/{key}": REVIEWERS,
    "POST /review/keywords/{key}": REVIEWERS,
    "POST /review/pairs/{pair}/undo": REVIEWERS,
    "GET /review/pairs/{pair}/other": REVIEWERS,
    "GET /review": REVIEWERS,
    "POST /review/sets": LEADS,
    "GET /review/sets/{name}": REVIEWERS,
    "POST /review/sets/{name}/revisions": REVIEWERS,
    "GET /review/sets/{name}/differences/{old}/{new}": REVIEWERS,
    "GET /review/sets/{name}/classes/{key}": REVIEWERS,
    "POST /review/sets/{name}/classes/{key}/marks": REVIEWERS,
    "POST /review/sets/{name}/classes/{key}/finish": REVIEWERS,
    "GET /review/sets/{name}/freeze": LEADS,
    "POST /review/sets/{name}/freeze": LEADS,
    "GET /review/pairs": REVIEWERS,
    "POST /review/pairs/{pair}": REVIEWERS,
    "GET /review/images/{entry}": REVIEWERS,
    "GET /review/originals/{entry}": REVIEWERS,
}
#: Values that mean something where there is something, and are harmless everywhere.
PLACES = {"token": "x", "name": "set", "key": "cat", "kind": "csv", "entry": "1", "task": "x", "image": "x"}


def concrete(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: PLACES.get(found.group(1), "999999"), path)


def test_the_table_names_every_address(site: Site) -> None:
    paths = workshop_app(site.project).openapi()["paths"]
    listed = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert listed == set(ACCESS)


@pytest.fixture(scope="module")
def people(site: Site) -> dict[str, Visitor]:
    visitors = {role: site.visitor() if role == "nobody" else site.person(role) for role in ROLES}  # type: ignore[arg-type]
    for role, visitor in visitors.items():
        visitor.get("/login" if role == "nobody" else "/account")
    if "set" not in set_names(site.project):
        work(site.project, annotators(site.project, 2))
        sample(site.project, "set", make_sampling("top-images", min_annotations=1), per_class=3)
    return visitors


@pytest.mark.parametrize("role", ROLES)
def test_roles(site: Site, people: dict[str, Visitor], role: str) -> None:
    visitor = people[role]
    for entry, allowed in ACCESS.items():
        method, _, path = entry.partition(" ")
        if path in ("/logout", "/account/password", "/join", "/login"):
            continue  # these change who one is; they have tests of their own
        answer = visitor.get(concrete(path)) if method == "GET" else visitor.post(concrete(path))
        turned_away = (answer.status == 303 and answer.headers["location"] == "/login" and path != "/") or (
            answer.status == 403 and answer.error in ("NotAllowedError", "SignedOutError")
        )
        if path == "/tasks/{task}/images/{image}" and role == "reviewer":
            turned_away = answer.status == 403
        assert turned_away == (role not in allowed), (entry, answer.status)
        assert answer.status < 500


def test_every_form_needs_the_token_of_its_session(site: Site, people: dict[str, Visitor]) -> None:
    lead = people["lead"]
    reviewer = people["reviewer"]
    lines = len(audit_log(site.project, last=100_000))
    posts = [concrete(entry.partition(" ")[2]) for entry in ACCESS if entry.startswith("POST")]
    for path in posts:
        for token in ("", "0" * 64, reviewer.form):
            answer = lead.post(path, {"because": "x", "role": "lead"}, form=token)
            assert answer.status == 403 and answer.error == "ForgedFormError", path
        for name, value in (("Origin", "https://evil.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")):
            answer = lead.post(path, {"because": "x", "role": "lead"}, **{name: value})
            assert answer.status == 403 and answer.error == "ForgedFormError", path
    assert lead.get("/account").status == 200  # nobody was signed out
    new = audit_log(site.project, last=100_000)[:-lines]
    assert {line.action for line in new} == {"refused"} and len(new) > 50


def test_files_and_json_are_no_forms(people: dict[str, Visitor]) -> None:
    lead = people["lead"]
    for body in ({"json": {"form": lead.form}}, {"files": {"form": lead.form.encode()}}):
        answer = lead.http.post("/lead/invitations", **body)
        assert answer.status_code == 400


def test_headers(site: Site, people: dict[str, Visitor]) -> None:
    for visitor, path in ((people["nobody"], "/login"), (people["lead"], "/lead"), (people["nobody"], "/nothing")):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin" and "server" not in headers
    page = people["lead"].sheet.text
    assert "<style" not in page and " style=" not in page and " onclick" not in page


def test_the_session_cookie(site: Site) -> None:
    with site.visitor() as visitor:
        token = invite(site.project, "annotator").token
        visitor.get(f"/join/{token}")
        cookie = visitor.post("/join", {"token": token}).headers["set-cookie"]
        assert (
            "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie and "Max-Age=1209600" in cookie
        )
        session = visitor.http.cookies["shiftbench-session"]
        assert len(session) >= 40 and person_of_session(site.project, session)
        visitor.get("/account")
        assert visitor.post("/logout").status == 303
        assert person_of_session(site.project, session) is None
        visitor.http.cookies.set("shiftbench-session", session)
        assert visitor.get("/task").headers["location"] == "/login"


def test_an_ended_session_can_do_nothing(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        leave(site.project, person.http.cookies["shiftbench-session"])
        assert person.answer(grid.images[:1], task=grid.task).status == 403
        assert person.get("/task").headers["location"] == "/login"


def test_pictures_end_with_the_session(site: Site) -> None:
    """A grid's pictures are answered from memory: not to whoever has signed out, and not to another session."""
    with site.person() as person, site.person() as second:
        picture = re.findall(r'<img src="(/tasks/[^"]+)"', person.sheet.text)[0]
        assert person.http.get(picture).status_code == person.http.get(picture).status_code == 200
        assert second.http.get(picture).status_code == 404
        session = person.http.cookies["shiftbench-session"]
        person.get("/account")
        assert person.post("/logout").status == 303
        person.http.cookies.set("shiftbench-session", session)
        assert person.http.get(picture).headers["location"] == "/login"


def test_pictures_end_with_an_exclusion(site: Site) -> None:
    with site.person() as person, site.person("lead") as lead:
        picture = re.findall(r'<img src="(/tasks/[^"]+)"', person.sheet.text)[0]
        assert person.http.get(picture).status_code == 200
        account = person_of_session(site.project, person.http.cookies["shiftbench-session"])
        assert account is not None
        lead.get("/lead")
        assert lead.post(f"/lead/accounts/{account.id}/exclude", {"because": "guesses"}).status == 303
        assert person.http.get(picture).status_code == 403


def test_who_is_excluded_keeps_the_account_and_nothing_else(site: Site) -> None:
    for role, page in (("annotator", "/task"), ("reviewer", "/review"), ("lead", "/lead")):
        with site.person(role) as person:  # type: ignore[arg-type]
            token = person.http.cookies["shiftbench-session"]
            account = person_of_session(site.project, token)
            assert account and person.get(page).status == 200
            exclude(site.project, account.id, "guesses")
            assert person.get(page).status == 403 and "excluded" in person.sheet.text
            assert person.get("/account").status == 200 and "do not count" in person.sheet.text


def test_every_page_has_an_icon(site: Site) -> None:
    with site.visitor() as visitor:
        (address,) = re.findall(r'<link rel="icon" href="([^"]+)"', visitor.get("/login").text)
        for path in (address, "/favicon.ico"):
            answer = visitor.http.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")


def test_bad_links(site: Site) -> None:
    with site.visitor() as visitor:
        for token in ("nothing", "../../etc/passwd", "x" * 3000, "\u0000", "<script>"):
            page = visitor.get("/login")
            refused = 400 if "\0" in token else 403  # NUL is no text for a database
            assert visitor.post("/join", {"token": token}, form=page.form).status == refused
        assert "shiftbench-session" not in visitor.http.cookies


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/x/images/..%2f..%2ftestset.toml",
        "/tasks/../../testset.sqlite",
        "/static/..%2fapp.py",
        "/static/",
        "/review/images/..%2f1",
        "/review/images/1e3",
        "/review/originals/-1",
        "/images/",
        "/static/%00",
        "/review/sets/..%2f..%2fx",
        "/review/sets/set/classes/..%2f..",
        "/tasks/%ff/images/%00",
        "/lead/frequencies.py",
    ],
)
def test_no_way_out_of_the_pictures(people: dict[str, Visitor], path: str) -> None:
    answer = people["lead"].http.get(path)
    assert answer.status_code in (400, 404)
    assert "Traceback" not in answer.text and "sqlite" not in answer.text


def test_a_hundred_megabytes(site: Site) -> None:
    """Refused by its announced length, before it is read; and where none is announced, soon."""
    with site.person() as person:
        session = person.http.cookies["shiftbench-session"]
        host = "localhost"
        port = site.server.port
        head = (
            f"POST /tasks/{person.sheet.task}/answer HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: http://{host}:{port}\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nCookie: shiftbench-session={session}\r\n"
        )
        with socket.create_connection((host, port), timeout=120) as connection:
            connection.sendall(f"{head}Content-Length: {100 << 20}\r\n\r\n".encode())
            assert b" 413 " in connection.recv(1000)  # nothing of the body was sent
        with socket.create_connection((host, port), timeout=120) as connection:
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            sent = 0
            chunk = b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
            try:
                while sent < 100 << 20:
                    connection.sendall(chunk)
                    sent += 0x2000
                    connection.settimeout(0.02)
                    try:
                        answer = connection.recv(1000)
                        break
                    except TimeoutError:
                        connection.settimeout(120)
            except OSError:
                answer = b" 413 "
            assert b" 413 " in answer and sent < LARGEST_BODY + (8 << 20)
        assert person.get("/task").is_grid


def test_too_many_wrong_passwords(new_project: NewProject) -> None:
    project = new_project()
    create_account(project, "anna", "annotator", "correct horse battery")
    with served(project) as site, site.visitor() as visitor:
        visitor.get("/login")
        right = {"name": "anna", "password": "correct horse battery"}
        assert visitor.post("/login", right).headers["location"] == "/task"
        with site.visitor() as stranger:
            # A stranger who guesses, at one name or at many, cannot lock the owner out of a browser used before.
            stranger.get("/login")
            guesses = [{"name": "anna", "password": "wrong password"}] * 60
            statuses = (stranger.post("/login", guess).status for guess in guesses)
            before_limit = list(takewhile(lambda status: status != 429, statuses))
            assert set(before_limit) == {403} and len(before_limit) < 60
            assert stranger.post("/login", right).status == 429
        visitor.get("/account")
        visitor.post("/logout")
        visitor.get("/login")
        assert visitor.post("/login", right).headers["location"] == "/task"
        visitor.get("/account")
        visitor.post("/logout")
        visitor.http.cookies.delete("shiftbench-device")
        visitor.get("/login")
        # On a slow machine more than the ten of a burst, as the limit gives some back every minute.
        tries = [{"name": f"n{i}", "password": "wrong password"} for i in range(60)]
        answers = list(
            takewhile(lambda status: status != 429, (visitor.post("/login", guess).status for guess in tries))
        )
        assert set(answers) <= {403} and len(answers) < 60
        assert visitor.post("/login", right).status == 429
        written = site.server.stop()
        assert "correct horse" not in written and "Traceback" not in written
        log = str([line.details for line in audit_log(project)])
        assert "wrong password" not in log and "correct horse" not in log and "wrong name or password" in log


def test_a_stranger_cannot_lock_a_new_browser_of_the_lead(project: Project) -> None:
    create_account(project, "lead", "lead", "correct horse battery")
    app = shielded(workshop_app(project))

    def sign_in(address: str, password: str) -> int:
        with TestClient(app, "http://localhost", client=(address, 50_000), follow_redirects=False) as browser:
            form = re.search(r'name="form" value="([0-9a-f]+)"', browser.get("/login").text)
            assert form is not None
            fields = {"name": "lead", "password": password, "form": form[1]}
            return browser.post("/login", data=fields).status_code

    guesses = [sign_in(f"2001:db8::{i}", "wrong password") for i in range(12)]  # one network, many addresses
    assert guesses[:10] == [403] * 10 and guesses[-1] == 429
    assert sign_in("192.0.2.7", "correct horse battery") == 303


def test_an_open_browser_cannot_change_the_password_without_the_old_one(project: Project) -> None:
    create_account(project, "lead", "lead", "correct horse battery")
    app = shielded(workshop_app(project))

    def token(browser: TestClient, page: str) -> str:
        form = re.search(r'name="form" value="([0-9a-f]+)"', browser.get(page).text)
        assert form is not None
        return form[1]

    def sign_in(browser: TestClient, password: str) -> int:
        fields = {"name": "lead", "password": password, "form": token(browser, "/login")}
        return browser.post("/login", data=fields).status_code

    def change(browser: TestClient, old: str) -> int:
        fields = {"old": old, "password": "a stranger's own", "again": "a stranger's own"}
        return browser.post("/account/password", data=fields | {"form": token(browser, "/account")}).status_code

    with (
        TestClient(app, "http://localhost", follow_redirects=False) as browser,
        TestClient(app, "http://localhost", follow_redirects=False) as elsewhere,
    ):
        assert sign_in(browser, "correct horse battery") == 303
        assert sign_in(elsewhere, "correct horse battery") == 303
        assert 'name="old"' in browser.get("/account").text
        assert [change(browser, old) for old in ("", "a guess")] == [403, 403]
        assert elsewhere.get("/account").status_code == 200
        assert change(browser, "correct horse battery") == 303
        assert elsewhere.get("/account").status_code == 303, "other sessions are ended"
        assert sign_in(browser, "correct horse battery") == 403
        assert sign_in(browser, "a stranger's own") == 303
        guesses = [change(browser, "a guess") for _ in range(12)]
        assert guesses[-1] == 429, "guesses are limited"


def test_only_known_hosts(site: Site) -> None:
    """Otherwise a page of another name that resolves to this machine could use it, and appear in invitations."""
    port = site.server.port
    with site.visitor() as visitor:
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "",
            "localhost.evil.example",
            "8.8.8.8",
            "[::2]:80",
            "localhost:80@evil.example",
            "[::1]evil.example",
            "localhost.",
        ):
            assert visitor.http.get("/login", headers={"Host": host}).status_code == 421, host
        for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
            assert visitor.http.get("/login", headers={"Host": host}).status_code == 200, host
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 421 " in connection.recv(65536)


def test_hosts_of_public_servers() -> None:
    everywhere = KnownHosts.of(None, "0.0.0.0")
    assert "192.0.2.7" in everywhere and socket.gethostname().lower() in everywhere
    assert "evil.example" not in everywhere
    proxied = KnownHosts.of("https://Pets.example:8443")
    assert "pets.example" in proxied and "127.0.0.1" in proxied and "192.0.2.7" not in proxied


def test_slow_requests_are_closed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a header and half a body, with short deadlines: the server closes both, and serves others meanwhile."""
    import threading

    import uvicorn

    from shiftbench.reports.page import server as deadlines
    from shiftbench.testsets.web import app as web
    from shiftbench.testsets.web import security

    monkeypatch.setattr(deadlines, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(security, "_BODY_SECONDS", 1.0)
    listener = web.bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        web.shielded(web.workshop_app(project)), http=deadlines.DeadlineProtocol, lifespan="off", log_level="error"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        request = f"GET /login HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        body = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\nContent-Type: {FORM}\r\n\r\nname="
        beginnings = [b"", b"GET /login HT", request[:-2], request + b"GET /", body.encode()]
        slow = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in beginnings]
        for connection, sent in zip(slow, beginnings, strict=True):
            connection.sendall(sent)
        assert httpx.get(f"http://localhost:{port}/login", timeout=120).status_code == 200
        for connection, sent in zip(slow, beginnings, strict=True):
            received = b""
            while data := connection.recv(65536):  # until it is closed; otherwise the socket's timeout fails the test
                received += data
            assert (b" 200 " in received) == (request in sent) and (b" 408 " in received) == (b"POST" in sent)
            connection.close()
    finally:
        server.should_exit = True
        thread.join()


def test_headers_without_end(site: Site) -> None:
    """They are neither kept in memory nor waited for: the connection is closed before the deadline."""
    address = "127.0.0.1", site.server.port
    with socket.create_connection(address, timeout=10) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(200):
            connection.sendall(b"a" * 65536)
        assert connection.recv(1) == b""


def test_links_are_in_no_log(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    with served(project) as site:
        token = invite(project, "annotator").token
        with site.visitor() as visitor:
            visitor.join(token)
            visitor.get("/join/wrong-but-secret")
            visitor.post("/join", {"token": "wrong-but-secret"})
        first_link = site.server.lead_link
        written = site.server.stop()
    log = str([line.details for line in audit_log(project)])
    assert first_link and first_link not in log
    for secret in (token, "wrong-but-secret"):
        assert secret not in written and secret not in log


def test_the_first_start_invites_a_lead_once(new_project: NewProject) -> None:
    project = new_project()
    with served(project) as site:
        unused = site.server.lead_link
    named = invite(project, "lead", "Anna").token
    with served(project) as site, site.visitor() as lead, site.visitor() as late:
        assert unused and site.server.lead_link
        late.get(f"/join/{unused}")
        assert late.post("/join", {"token": unused}).status == 403
        assert lead.join(site.server.lead_link).status == 200
        # Leads who were invited by name keep their links.
        with Visitor(site.server.address) as anna:
            assert anna.join(named).status == 200
        invited = lead.post("/lead/invitations", {"role": "annotator", "name": "Bo <b>"})
        link = re.search(r'value="(http://\S+/join/[\w-]+)"', invited.text)
        assert link and "Bo &lt;b&gt;" in invited.text
        with Visitor(site.server.address) as annotator:
            annotator.join(link.group(1).rpartition("/")[2])
            assert annotator.sheet.page == "done"
    with served(project) as site:
        assert site.server.lead_link is None


def test_behind_https(new_project: NewProject) -> None:
    project = new_project()
    with served(project, "--public-url", "https://pets.example") as site:
        address = f"http://localhost:{_port(site)}"
        page = httpx.get(f"{address}/login")
        cookie = page.headers["set-cookie"]
        assert cookie.startswith("__Host-shiftbench-visitor=") and "Secure" in cookie
        assert "strict-transport-security" in page.headers
        token = re.search(r'name="form" value="(\w+)"', page.text)
        assert token
        fields = {"form": token.group(1), "name": "a", "password": "b"}
        sent = {"Cookie": cookie.partition(";")[0]}
        ours, theirs = (
            httpx.post(f"{address}/login", data=fields, headers={**sent, "Origin": origin}, timeout=120)
            for origin in ("https://pets.example", address)
        )
        assert 'data-page="login"' in ours.text and 'data-error="ForgedFormError"' in theirs.text


def _port(site: Site) -> int:
    """Of a server that names its public address: found by asking the system which port its process listens on."""
    from pathlib import Path

    process = site.server.process.pid
    inodes = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
    for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return int(fields[1].rpartition(":")[2], 16)
    raise AssertionError("the server listens nowhere")


def test_script_in_a_class_name(new_project: NewProject) -> None:
    wicked = "<script>alert(1)</script>\"'&"
    classes = (
        ClassDefinition("cat", wicked, definition=wicked, link="javascript:alert(1)"),
        ClassDefinition("dog"),
        ClassDefinition("frog"),
    )
    rules = Configuration("pets", classes).annotation
    project = new_project(
        Configuration("pets", classes, annotation=rules), grid=16, annotators=3, references_per_class=4
    )
    fill(project)
    with served(project) as site, site.person() as person, site.person("lead") as lead:
        grids = []
        while (sheet := person.get("/task")).is_grid:
            grids.append(sheet)
            person.answer(sheet.images[:3])
        pages = [*(sheet.text for sheet in grids), lead.get("/lead").text, lead.get("/lead/frequencies").text]
        assert any(sheet.class_name == wicked for sheet in grids)
        for text in pages:
            assert "<script>alert" not in text and "javascript:" not in text


def test_limits_refill() -> None:
    moment = 0.0
    limit = Limit(3, 60, clock=lambda: moment)
    for _ in range(3):
        limit.take("a")
    with pytest.raises(TooManyError):
        limit.take("a")
    limit.take("b")
    moment = 1.0
    limit.take("a")
    assert not limit.try_take("a")
    limit.give_back("a")
    assert limit.try_take("a") and not limit.try_take("a")
    moment = 1e6
    assert [limit.try_take("a") for _ in range(4)] == [True, True, True, False]


def test_limits_do_not_fill_the_memory() -> None:
    limit = Limit(1, 0)
    for i in range(25_000):
        limit.try_take(str(i))
    assert len(limit._left) <= 10_000


def test_a_broken_page_shows_no_trace(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    from shiftbench.testsets.web import auth
    from shiftbench.testsets.web.app import shielded

    def broken(*_: object) -> None:
        raise RuntimeError("a secret detail")

    app = workshop_app(Project.open(site.project.folder, database=database_url(site.project)))
    monkeypatch.setattr(auth, "see_other", broken)
    answer = TestClient(shielded(app), "http://localhost", raise_server_exceptions=False).get("/")
    assert answer.status_code == 500 and 'data-page="refused"' in answer.text
    assert "secret detail" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["content-security-policy"]


class _NoAnswerError(Exception):
    """As psycopg raises it if the server does not answer; errors of the server have a state."""

    sqlstate = None


def test_visitors_are_not_told_where_a_lost_database_is(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = TestClient(shielded(workshop_app(project)), "http://localhost", raise_server_exceptions=False)
    _, session = enter_by_link(project, invite(project, "annotator", "Anna").token)
    browser.cookies.set("shiftbench-session", session)
    assert browser.get("/account").status_code == 200

    def lost() -> None:
        raise OperationalError(
            "SELECT 1", {}, _NoAnswerError("connection to server at 10.0.0.7 failed: timeout expired")
        )

    monkeypatch.setattr(project.database, "_read", lost)
    answer = browser.get("/task")
    assert answer.status_code == 503
    assert "10.0.0.7" not in answer.text and "sqlite" not in answer.text
    with pytest.raises(DatabaseUnreachableError, match="timeout expired"), project.reading():
        pass
