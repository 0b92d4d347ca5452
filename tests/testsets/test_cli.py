"""``shiftbench testset`` as a user types it, from an empty folder to the reproducibility study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from shiftbench.cli.app import app
from shiftbench.testsets.accounts import enter_by_link, people
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import revision_images
from tests.commands import answer, call, output
from tests.testsets.conftest import PostgresServer
from tests.testsets.helpers import by_share, work
from tests.testsets.pool.test_import_images import pet_folders


def run(*arguments: object) -> str:
    """All that is shown."""
    result = call("testset", *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def data(*arguments: object) -> Any:
    """Machine-readable output, and nothing else, on stdout."""
    return answer("testset", *arguments)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    (tmp_path / "pets.csv").write_text("key,definition\ncat,a tame cat\ndog,a tame dog\nfrog,a wild frog\n")
    created = data("init", tmp_path / "pets", "--labels", tmp_path / "pets.csv", "--grid", 16, "--annotators", 3)
    assert (created["name"], created["classes"], created["folder"]) == ("pets", 3, str(tmp_path / "pets"))
    return tmp_path / "pets"


def test_the_whole_way(pets: Path, tmp_path: Path) -> None:
    folder = pet_folders(tmp_path / "flickr", each=12)
    done = data("import", pets, folder, "-q")
    assert (done["new"], done["known"], done["refused"]) == (36, 0, [])
    assert "0 new candidates, 36 known already" in run("import", pets, folder, "-q")
    assert "24 new references" in run("import", pets, "cifar-10-test", "--reference", "--per-class", 8, "-q")
    tasks = data("tasks", pets)
    # Without the copies of references, which no set can contain.
    assert tasks["candidates"] == 27 and tasks["tasks"] > 3 and "never searched" in tasks["unsearched"]
    assert "0 new grids with" in run("tasks", pets)
    links = data("invite", pets, "anna", "--people", 2, "--base", "https://lab.example/")
    assert [link["name"] for link in links] == ["anna", "", ""]
    assert links[0]["link"].startswith("https://lab.example/join/")
    project = Project.open(pets)
    persons = [enter_by_link(project, link["link"].rpartition("/")[2])[0].id for link in links]
    work(project, persons, by_share)

    status = data("status", pets)
    assert {row["share"] for row in status["annotation"]["rows"]} == {1.0}
    assert "Krippendorff" in run("status", pets)
    table = tmp_path / "frequencies.csv"
    run("frequencies", pets, "-o", table)
    assert len(table.read_text().splitlines()) == 61
    assert "selection frequencies" in run("frequencies", pets)

    option = ("--option", "min_annotations=3", "--option", "threshold=0.3")
    text = run("sample", pets, "--strategy", "threshold", *option, "--per-class", 3, "--note", "first try")
    assert "9 images by threshold, 3 per class, seed 0" in text
    gone = revision_images(project, "threshold")[0]
    marked = data("mark", pets, gone.digest[:12], "--note", "a drawing")
    assert (marked["entry"], marked["kind"], marked["note"]) == (gone.entry, "blacklist", "a drawing")
    refused = call("testset", "freeze", pets)
    assert refused.exit_code == 1 and "not converged" in str(refused.exception)
    again = data("sample", pets)
    assert (again["set"], again["revision"]) == ("threshold", 2)
    change = run("diff", pets, 1, 2)
    assert "8 kept, 1 removed, 1 added" in change and "a drawing" in change
    assert "nothing changed" in run("sample", pets)

    refused = call("eval", "demo:resnet8-cifar10", "--suite", f"testset:{pets}", "-w", tmp_path / "w", "-q")
    assert refused.exit_code == 1 and "no frozen set" in str(refused.exception)
    refused = call("testset", "freeze", pets)
    assert refused.exit_code == 1 and "3 of 3 classes not reviewed" in str(refused.exception)
    refused = call("testset", "freeze", pets, "--allow", "unreviewed")
    assert refused.exit_code == 1 and "never searched" in str(refused.exception)
    assert call("testset", "freeze", pets, "--allow", "anything").exit_code == 2
    text = run("freeze", pets, "--allow", "unreviewed", "--allow", "unsearched")
    frozen = json.loads((pets / "frozen" / "threshold" / "frozen.json").read_text())
    assert (frozen["images"], frozen["set"], frozen["revision"]) == (9, "threshold", 2)
    assert f"frozen: 9 images in {pets / 'frozen' / 'threshold'}, fingerprint {frozen['fingerprint']}" in text
    assert f"evaluate: shiftbench eval MODEL --suite testset:{pets}" in text
    assert "**NOT SEARCHED" in (pets / "frozen" / "threshold" / "README.md").read_text()
    assert data("answers", pets, "-o", tmp_path / "answers.csv") == {"file": str(tmp_path / "answers.csv")}
    assert (tmp_path / "answers.csv").read_text().startswith('"annotator","excluded","task","class"')
    exported = data("export", pets, tmp_path / "hub", "--format", "huggingface")
    assert exported == {"folder": str(tmp_path / "hub"), "format": "huggingface", "set": "threshold", "images": 9}
    assert list((tmp_path / "hub" / "data").glob("test-*.parquet"))
    output("eval", "demo:resnet8-cifar10", "--suite", f"testset:{pets}", "-w", tmp_path / "w", "-q", "--json")
    sides = ("--x", "pets-reference", "--y", "pets-threshold")
    study = answer("study", "reproducibility", "-w", tmp_path / "w", *sides)
    assert study["models"][0]["model"].startswith("resnet8")
    log = run("log", pets)
    assert "freeze" in log and "command line" in log
    excluded = data("exclude", pets, "anna", "--because", "a test")
    assert excluded["excluded"] and excluded["tasks"] == tasks["tasks"]
    assert [person.excluded for person in people(project)] == [True, False, False]
    run("exclude", pets, "anna", "--because", "a mistake", "--readmit")
    project.close()


def test_on_postgresql_by_url_without_showing_the_password(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database().replace("postgres@", "postgres:hunter2@")
    text = run("init", tmp_path / "pets", "--labels", "cifar-10", "--database", url)
    assert "hunter2" not in text and "postgresql+psycopg://postgres:***@" in text and "not stored" in text
    assert "hunter2" not in (tmp_path / "pets" / "testset.toml").read_text()
    assert "0 candidates" in run("status", tmp_path / "pets", "--database", url)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "nowhere"), "not a test-set project"),
        (("init", "PETS", "--labels", "cifar-10"), "already"),
        (("init", "new", "--labels", "cifar-11"), "did you mean 'cifar-10'"),
        (("sample", "PETS"), "--set"),
        (("sample", "PETS", "--strategy", "matched"), "unknown sampling strategy"),
        (("sample", "PETS", "--strategy", "threshold", "--option", "x"), "NAME=VALUE"),
        (("sample", "PETS", "--option", "threshold=1"), "--strategy"),
        (("mark", "PETS", "abcdef"), "no candidate"),
        (("freeze", "PETS", "--set", "x"), "unknown set 'x'"),
        (("export", "PETS", "out"), "no frozen set"),
        (("exclude", "PETS", "anna", "--because", "x"), "'anna'"),
        (("invite", "PETS", "--role", "king"), "'king'"),
    ],
)
def test_mistakes_are_explained(pets: Path, arguments: tuple[str, ...], message: str) -> None:
    result = call("testset", *(str(pets) if argument == "PETS" else argument for argument in arguments))
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_every_command_has_json() -> None:
    group = typer.main.get_command(app).get_command(None, "testset")  # type: ignore[attr-defined]
    commands = [*group.commands.values(), *group.commands["follow-up"].commands.values()]
    lacking = [command.name for command in commands if not any("--json" in option.opts for option in command.params)]
    assert lacking == ["follow-up"] and len(commands) > 20  # the group itself


def test_help_teaches() -> None:
    for command in ("init", "import", "tasks", "invite", "status", "sample", "freeze", "export"):
        assert len(run(command, "--help")) > 300
