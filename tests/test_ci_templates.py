"""The GitHub Action and the GitLab template: their scripts run here, with stand-ins for the two services."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from tests.cli.test_gate import MODEL, POLICY
from tests.runs.helpers import colour_folder

ROOT = Path(__file__).resolve().parents[1]
MARKER = "<!-- shiftbench gate -->"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
OPTIONS = "--labels colours.txt --corruption contrast --severity 1 --trust"
#: Knows the comments of one pull request, and what was asked of it.
GH = f"""#!{sys.executable}
import json, pathlib, sys
words = sys.argv[1:]
pathlib.Path("calls.txt").open("a").write(json.dumps(words) + "\\n")
if "--jq" in words and pathlib.Path("comment").exists():
    print(7)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    colour_folder(tmp_path / "photos", per_class=30)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "colours.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "gate.toml").write_text(POLICY)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {
        "gh": GH,
        "pip": f"#!{sys.executable}\nimport sys\nopen('installed', 'w').write(repr(sys.argv[1:]))\n",
        "shiftbench": f"#!{sys.executable}\nfrom shiftbench.cli import main\nmain()\n",
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def bash(script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )


class Action:
    """The steps of action.yml, with the expressions that they use filled in."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder = folder
        self.outputs = dict[str, str]()
        self.document = yaml.safe_load((ROOT / "action.yml").read_text())
        given = {name: one.get("default", "") for name, one in self.document["inputs"].items()} | inputs
        self.values = {f"inputs.{name}": value for name, value in given.items()}
        self.values["github.event.pull_request.number"] = "12"

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        [step] = [one for one in self.document["runs"]["steps"] if one["name"] == name]
        assert "${{" not in step["run"]  # an input would become code
        env = {key: self.filled(value) for key, value in step.get("env", {}).items()}
        files = {key: str(self.folder / key) for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        done = bash(step["run"], self.folder, {**env, **files, "GITHUB_REPOSITORY": "me/models"})
        written = Path(files["GITHUB_OUTPUT"])
        for line in written.read_text().splitlines() if written.exists() else ():
            key, _, value = line.partition("=")
            self.values[f"steps.gate.outputs.{key}"] = value
        return done

    def filled(self, value: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: self.values.get(match[1], ""), value)


def gate(project: Path, model: str, **more: str) -> Action:
    inputs = {"candidate": f"model.py:{model}", "against": "model.py:old", "data": "photos", "policy": "gate.toml"}
    return Action(project, **{**inputs, "options": OPTIONS, **more})


@pytest.mark.parametrize(
    ("model", "code", "verdict"), [("same", 0, "pass"), ("worse", 1, "fail"), ("nosuch", 3, "error")]
)
def test_the_action_gives_the_verdict(project: Path, model: str, code: int, verdict: str) -> None:
    action = gate(project, model, policy="" if model == "nosuch" else "gate.toml")
    done = action.step("Gate")
    assert done.returncode == 0, done.stderr  # so that the comment is written before the job fails
    assert action.values["steps.gate.outputs.verdict"] == verdict
    assert (project / "GITHUB_STEP_SUMMARY").read_text().startswith(MARKER)
    assert action.step("Verdict").returncode == code
    assert (project / "gate.xml").exists() is (code != 3)


def test_a_candidate_that_is_the_baseline_itself(project: Path) -> None:
    """It passes with a comment that says so; with --strict it is an error, with the same comment."""
    for options, code in ((OPTIONS, 0), (f"{OPTIONS} --strict", 3)):
        action = gate(project, "old", options=options)
        assert action.step("Gate").returncode == 0
        comment = (project / "gate.md").read_text()
        assert comment.startswith(MARKER) and "identical to the baseline: nothing to compare" in comment
        assert action.step("Verdict").returncode == code
    # The comment of an earlier run is not taken for that of one that ends with an error.
    action = gate(project, "nosuch")
    assert action.step("Gate").returncode == 0
    assert "error 3" in (project / "gate.md").read_text()


def test_the_cached_workspace_saves_the_work_of_the_baseline(project: Path) -> None:
    step = next(one for one in gate(project, "same").document["runs"]["steps"] if one["name"] == "Restore results")
    folder = gate(project, "same").filled(step["with"]["path"])
    for model in ("same", "worse"):
        assert gate(project, model).step("Gate").returncode == 0
    last = max((project / folder / "runs").glob("*.json"))
    models = {one["id"].partition("@")[0]: one for one in json.loads(last.read_text())["models"]}
    assert models["old"].get("reused") and not models["old"].get("computed")
    assert models["worse"].get("computed") and not models["worse"].get("reused")


def test_the_comment_is_replaced_by_the_next_one(project: Path) -> None:
    action = gate(project, "same")
    (project / "gate.md").write_text(MARKER)
    for there in (False, True):
        if there:
            (project / "comment").touch()
        assert action.step("Comment").returncode == 0
    calls = [json.loads(line) for line in (project / "calls.txt").read_text().splitlines()]
    made = [(words[words.index("--method") + 1], words[-3]) for words in calls if "--method" in words]
    assert made == [("POST", "repos/me/models/issues/12/comments"), ("PATCH", "repos/me/models/issues/comments/7")]
    assert all(words[-1] == "body=@gate.md" for words in calls if "--method" in words)


def test_the_action_installs_what_is_asked_for(project: Path) -> None:
    assert gate(project, "same", requirement="shiftbench==0.2").step("Install").returncode == 0
    assert (project / "installed").read_text() == "['install', '--quiet', 'shiftbench==0.2']"


def test_inputs_are_not_run_as_code(project: Path) -> None:
    gate(project, 'same"; touch hacked; "', options="$(touch hacked) `touch hacked`").step("Gate")
    assert not (project / "hacked").exists()


class GitLab(BaseHTTPRequestHandler):
    """The notes of one merge request."""

    def do_GET(self) -> None:
        self._answer(json.dumps(self.server.notes).encode())  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.server.notes.append({"id": 5, "body": self._body()})  # type: ignore[attr-defined]
        self._answer(b"{}")

    def do_PUT(self) -> None:
        number = int(self.path.rpartition("/")[2])
        [note] = [one for one in self.server.notes if one["id"] == number]  # type: ignore[attr-defined]
        note["body"] = self._body()
        self._answer(b"{}")

    def _body(self) -> str:
        assert self.headers["PRIVATE-TOKEN"] == "secret"
        return parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["body"][0]

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_gitlab_template(project: Path) -> None:
    job = yaml.safe_load((ROOT / "ci" / "gate.gitlab-ci.yml").read_text())[".shiftbench-gate"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), GitLab)
    server.notes = [{"id": 1, "body": "looks good"}]  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ci = {
        "GITLAB_TOKEN": "secret",
        "CI_API_V4_URL": f"http://127.0.0.1:{server.server_port}",
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "9",
    }
    try:
        given = {"CANDIDATE": "model.py:worse", "AGAINST": "model.py:old", "DATA": "photos", "OPTIONS": OPTIONS}
        env = {**job["variables"], **given, "POLICY": "gate.toml", **ci}
        (project / "gate.md").write_text(f"{MARKER} of the run before")
        for judged in (False, True):  # the comment of an earlier run is replaced
            if judged:
                assert bash("\n".join(job["script"]), project, env).returncode == 1
            for script in job["after_script"]:
                done = bash(script, project, env)
                assert done.returncode == 0, done.stderr
    finally:
        server.shutdown()
        server.server_close()
    first, own = server.notes  # type: ignore[attr-defined]
    assert first["body"] == "looks good"
    assert own["body"] == (project / "gate.md").read_text() and "FAIL" in own["body"]
    assert (project / job["artifacts"]["reports"]["junit"]).is_file()


def test_without_a_token_nothing_is_sent(project: Path) -> None:
    job = yaml.safe_load((ROOT / "ci" / "gate.gitlab-ci.yml").read_text())[".shiftbench-gate"]
    (project / "gate.md").write_text(MARKER)
    env = {"GITLAB_TOKEN": "", "CI_MERGE_REQUEST_IID": "9", "CI_API_V4_URL": "http://127.0.0.1:9"}
    assert [bash(script, project, env).returncode for script in job["after_script"]] == [0]
