"""A static leaderboard of many workspaces: one folder of files that any web server serves, or a browser opens.

The table is in the page itself, so that it is complete without scripts; a small script sorts and filters it. Nothing is
fetched from elsewhere, and the page's policy allows only its own style and script.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from string import Template

from shiftbench import Run, __version__
from shiftbench.bridges.published_scores import PublishedScore, published_scores
from shiftbench.errors import ShiftbenchError
from shiftbench.extend.io import write_bytes


@dataclass(frozen=True)
class Place:
    """Where a model stands among published models: its distance from their line, in points."""

    setting: str
    sentence: str
    points: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Entry:
    """A row: one version of a model in one workspace."""

    workspace: str
    model: str
    model_id: str
    assumed: str
    scores: dict[str, PublishedScore] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class LeaderboardColumn:
    """Numbers that may be compared with each other."""

    key: str
    setting: str
    metric: str
    provenance: str
    #: Tells columns of one setting and metric apart; empty if there is only one.
    number: str
    higher_is_better: bool


def write_site(
    workspaces: Sequence[str | Path], folder: Path, *, title: str = "Robustness leaderboard", level: float = 0.95
) -> list[Path]:
    """Write ``index.html``, ``scores.csv`` and ``scores.json``.

    Args:
        workspaces: Folders or URLs.
        folder: The folder to write; other files in it are left alone.
        title: The title of the page.
        level: Confidence level of the intervals.

    Returns:
        The files.

    Raises:
        ShiftbenchError: The workspaces hold no scores.
    """
    entries: list[Entry] = []
    for workspace in workspaces:
        entries += _entries(str(workspace), level)
    if not any(entry.scores for entry in entries):
        raise ShiftbenchError("no scores to show", found=", ".join(map(str, workspaces)), expected="results of `eval`")
    columns = _columns(entries)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "index.html": _page(entries, columns, title, level),
        "scores.csv": _csv(entries),
        "scores.json": _json(entries, title, level),
    }
    paths = []
    for name, text in files.items():
        write_bytes(folder / name, text.encode())
        paths.append(folder / name)
    return paths


def _entries(workspace: str, level: float) -> list[Entry]:
    """The models of a workspace."""
    run = Run.open(workspace)
    name = workspace.rstrip("/").rpartition("/")[2] or workspace
    entries: dict[str, Entry] = {}
    titles: dict[str, str] = {}
    for score in published_scores(run, level=level):
        entry = entries.setdefault(score.model_id, Entry(name, score.model, score.model_id, score.assumed))
        titles[score.model] = score.model_id
        entry.scores[_key(score)] = score
    for placement in run.baselines(level=level):
        effective = placement.effective
        place = Place(
            placement.setting,
            placement.sentence,
            None if effective is None else 100 * effective.rho,
            None if effective is None else 100 * effective.low,
            None if effective is None else 100 * effective.high,
        )
        if placement.model in titles:
            entries[titles[placement.model]].places.append(place)
    return list(entries.values())


def _key(score: PublishedScore) -> str:
    return hashlib.blake2b(f"{score.name}\n{score.provenance}".encode(), digest_size=6).hexdigest()


def _columns(entries: Iterable[Entry]) -> list[LeaderboardColumn]:
    """One column per setting, metric and provenance, in the order of the results."""
    first: dict[str, PublishedScore] = {}
    for entry in entries:
        for key, score in entry.scores.items():
            first.setdefault(key, score)
    names = [score.name for score in first.values()]
    seen: dict[str, int] = {}
    columns = []
    for key, score in first.items():
        seen[score.name] = seen.get(score.name, 0) + 1
        number = f" ({seen[score.name]})" if names.count(score.name) > 1 else ""
        columns.append(
            LeaderboardColumn(key, score.setting, score.metric, score.provenance, number, score.higher_is_better)
        )
    return columns


def _csv(entries: Iterable[Entry]) -> str:
    """One row per score."""
    stream = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for entry in entries:
        for score in entry.scores.values():
            row = {"workspace": entry.workspace, **asdict(score)}
            if writer is None:
                writer = csv.DictWriter(stream, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
    return stream.getvalue()


def _json(entries: Iterable[Entry], title: str, level: float) -> str:
    models = []
    for entry in entries:
        model = asdict(entry)
        model["scores"] = [asdict(score) for score in entry.scores.values()]
        models.append(model)
    content = {"title": title, "shiftbench": __version__, "level": level, "models": models}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# -- the page ----------------------------------------------------------------------------------------------------------

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--back:#fff;--text:#1a1a1a;--link:#0b57d0;--warn:#9a5b00}
@media(prefers-color-scheme:dark){:root{--back:#16181c;--text:#e8e8e8;--link:#8ab4f8;--warn:#e0a84a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:90rem;padding:1rem 1.2rem 3rem;background:var(--back);color:var(--text);
font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}p{margin:.4rem 0;max-width:60rem}a{color:var(--link)}
form{display:flex;flex-wrap:wrap;gap:.6rem 1.2rem;margin:1rem 0;align-items:center}
input[type=search],select{font:inherit;padding:.35rem .5rem;min-width:12rem;max-width:100%;color:inherit;
background:var(--back);border:1px solid var(--line);border-radius:.3rem}
.frame{overflow:auto;max-height:80vh;border:1px solid var(--line);border-radius:.4rem}
table{border-collapse:separate;border-spacing:0;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.4rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line);
vertical-align:top}
thead th{position:sticky;top:0;background:var(--back);z-index:1;vertical-align:bottom}
th:first-child,td:first-child{position:sticky;left:0;background:var(--back);text-align:left;white-space:normal;
min-width:9rem;max-width:16rem;overflow-wrap:anywhere}
thead th:first-child{z-index:2}
th button{all:unset;cursor:pointer;font-weight:600;white-space:normal;overflow-wrap:anywhere}
th button:focus-visible{outline:2px solid var(--link)}
th[aria-sort] button small{display:inline;margin-left:.3rem}
th[aria-sort] button::after{content:" \\2195";opacity:.5}
th[aria-sort=ascending] button::after{content:" \\2191";opacity:1}
th[aria-sort=descending] button::after{content:" \\2193";opacity:1}
small{display:block;opacity:.75;font-size:.8rem;font-weight:400}
.warn{color:var(--warn);opacity:1}tbody tr:hover td{background-image:linear-gradient(var(--soft),var(--soft))}
ol{padding-left:1.4rem}li{margin:.25rem 0;overflow-wrap:anywhere}
@media(max-width:40rem){body{padding:.7rem .6rem 2rem}th,td{padding:.35rem .5rem}
th:first-child,td:first-child{min-width:6.5rem;max-width:7.5rem}h1{font-size:1.25rem}}
"""
_SCRIPT = """
const table = document.querySelector("table");
const body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const form = document.querySelector("form");
form.hidden = false;
function value(row, index) {
  const cell = row.cells[index];
  return index === 0 ? cell.innerText.toLowerCase() : Number(cell.dataset.value ?? NaN);
}
function sort(index) {
  const head = heads[index];
  const first = head.dataset.first;
  const other = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const cell of heads) cell.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((one, two) => {
    const a = value(one, index), b = value(two, index);
    if (typeof a === "string") return sign * a.localeCompare(b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  });
  body.append(...rows);
}
heads.forEach((head, index) => head.querySelector("button").addEventListener("click", () => sort(index)));
function filter() {
  const words = form.elements.words.value.toLowerCase();
  const workspace = form.elements.workspace.value;
  const setting = form.elements.setting.value;
  let shown = 0;
  for (const row of body.rows) {
    row.hidden = !row.cells[0].innerText.toLowerCase().includes(words) ||
      (workspace !== "" && row.dataset.workspace !== workspace);
    shown += row.hidden ? 0 : 1;
  }
  heads.forEach((head, index) => {
    const hidden = index > 0 && setting !== "" && head.dataset.setting !== setting;
    for (const row of table.rows) row.cells[index].hidden = hidden;
  });
  document.querySelector("output").value = `${shown} of ${body.rows.length} models`;
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
"""
_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title><style>$style</style></head><body>
<h1>$title</h1>
<p>$models in $workspaces. Brackets are $level % intervals: where they overlap, the order of two models may be chance.
The same numbers as <a href="scores.csv">CSV</a> and <a href="scores.json">JSON</a>.</p>
<form hidden><label>Model <input type="search" name="words" autocomplete="off"></label>
<label>Workspace <select name="workspace"><option value="">all</option>$workspace_options</select></label>
<label>Setting <select name="setting"><option value="">all</option>$setting_options</select></label>
<output></output></form>
<div class="frame" tabindex="0"><table><thead><tr>$heads</tr></thead><tbody>
$rows
</tbody></table></div>
<h2>What the columns rest on</h2><ol>$columns</ol>
<p><small>$marks shiftbench $version</small></p>
<script>$script</script></body></html>
""")
_MARKS = "† Preprocessing that nobody stated was assumed. ‡ Some of the images were among the model's training images."


def _page(entries: Sequence[Entry], columns: Sequence[LeaderboardColumn], title: str, level: float) -> str:
    settings = list(dict.fromkeys([column.setting for column in columns] + _placed_settings(entries)))
    workspaces = list(dict.fromkeys(entry.workspace for entry in entries))
    return _PAGE.substitute(
        policy=f"default-src 'none'; style-src '{_hash(_STYLE)}'; script-src '{_hash(_SCRIPT)}'; base-uri 'none'",
        title=escape(title),
        style=_STYLE,
        script=_SCRIPT,
        models=_counted(len(entries), "model"),
        workspaces=_counted(len(workspaces), "workspace"),
        level=f"{100 * level:g}",
        workspace_options="".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in workspaces),
        setting_options="".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in settings),
        heads=_heads(entries, columns),
        rows="\n".join(_row(entry, columns, _placed_settings(entries)) for entry in _ordered(entries, columns)),
        columns="".join(f"<li>{escape(_title(column))}: {escape(column.provenance)}</li>" for column in columns),
        marks=_MARKS,
        version=escape(__version__),
    )


def _ordered(entries: Sequence[Entry], columns: Sequence[LeaderboardColumn]) -> list[Entry]:
    """The models by the first column, the best first; those without this number last."""
    column = columns[0]
    sign = -1 if column.higher_is_better else 1

    def rank(entry: Entry) -> tuple[bool, float]:
        score = entry.scores.get(column.key)
        return score is None, 0.0 if score is None else sign * score.value

    return sorted(entries, key=rank)


def _placed_settings(entries: Iterable[Entry]) -> list[str]:
    """Settings in which a model has a distance from the line of published models."""
    settings: dict[str, None] = {}
    for entry in entries:
        for place in entry.places:
            settings[place.setting] = None
    return list(settings)


def _heads(entries: Sequence[Entry], columns: Sequence[LeaderboardColumn]) -> str:
    heads = ['<th scope="col" data-first="ascending" aria-sort="none"><button type="button">model</button></th>']
    for column in columns:
        first = "descending" if column.higher_is_better else "ascending"
        heads.append(_head(column.setting + column.number, column.metric, first, column.setting))
    for setting in _placed_settings(entries):
        heads.append(_head(setting, "points above the line of published models", "descending", setting))
    return "".join(heads)


def _head(name: str, metric: str, first: str, setting: str) -> str:
    return (
        f'<th scope="col" data-first="{first}" data-setting="{escape(setting)}" aria-sort="none">'
        f'<button type="button">{escape(name)}<small>{escape(metric)}</small></button></th>'
    )


def _row(entry: Entry, columns: Sequence[LeaderboardColumn], placed_settings: Sequence[str]) -> str:
    mark = "†" if entry.assumed else ""
    if any(score.training_images for score in entry.scores.values()):
        mark += "‡"
    warning = f'<small class="warn">assumed: {escape(entry.assumed)}</small>' if entry.assumed else ""
    cells = [
        f"<td><b>{escape(entry.model)}</b>{mark}<small>{escape(entry.model_id)}</small>"
        f"<small>{escape(entry.workspace)}</small>{warning}</td>"
    ]
    for column in columns:
        score = entry.scores.get(column.key)
        if score is None:
            cells.append("<td>–</td>")
            continue
        number, _, interval = score.text.partition(" [")
        training = "‡" if score.training_images else ""
        cells.append(
            f'<td data-value="{score.value!r}">{number}{training}<small>[{interval}</small>'
            f"<small>n = {score.images:,}</small></td>"
        )
    places = {place.setting: place for place in entry.places}
    cells += [_place_cell(places.get(setting)) for setting in placed_settings]
    return f'<tr data-workspace="{escape(entry.workspace)}">{"".join(cells)}</tr>'


def _place_cell(place: Place | None) -> str:
    """A distance from the line with its interval, or the rank where no line is drawn."""
    if place is None:
        return "<td>–</td>"
    if place.points is None or place.low is None or place.high is None:
        return f"<td><small>{escape(place.sentence)}</small></td>"
    interval = f"[{place.low:+.1f}, {place.high:+.1f}]"
    return f'<td data-value="{place.points!r}">{place.points:+.1f}<small>{interval}</small></td>'


def _title(column: LeaderboardColumn) -> str:
    return f"{column.setting}{column.number}, {column.metric}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
