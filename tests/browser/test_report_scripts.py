"""The page's scripts, one by one in the browser, against Python: the same digits, lines and quantiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import t

from shiftbench.errors import listed
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports import formatting
from shiftbench.studies import effective_robustness, fit, fit_piecewise, relative_robustness
from shiftbench.studies.base import SCALES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

#: Calls run("fit.js", "(module, argument) => ...", argument) and returns what comes back.
RunScript = Callable[..., Any]

ADDRESS = "http://scripts.test"


@pytest.fixture(scope="module")
def run(browser: Browser) -> Iterator[RunScript]:
    folder = resources.files("shiftbench.reports.page") / "assets" / "script"
    context = browser.new_context()

    def serve(route: Route) -> None:
        name = route.request.url.removeprefix(f"{ADDRESS}/")
        if name:
            route.fulfill(body=(folder / name).read_text(encoding="utf-8"), content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><title>scripts</title>", content_type="text/html")

    context.route("**/*", serve)
    tab = context.new_page()
    tab.goto(f"{ADDRESS}/")

    def run_(script: str, function: str, argument: object = None) -> Any:
        return tab.evaluate(f"async (argument) => ({function})(await import('/{script}'), argument)", argument)

    yield run_
    context.close()


def test_numbers_as_in_the_terminal(run: RunScript) -> None:
    """Among them exact halves, which Python rounds to the even neighbour and JavaScript away from zero."""
    rng = np.random.default_rng(1)
    values = [*rng.uniform(-1, 1, 300), *(k / 800 for k in range(-800, 801, 7)), *(k / 64 for k in range(-64, 65)),
              0.0, -0.0004, 1.0, 0.0625, 0.00125, 0.285, 1.005]  # fmt: skip
    cases = [
        (float(v), places, unit, signed)
        for v in values
        for places in (1, 2)
        for unit, signed in (("%", False), ("", True))
    ]
    shown = run("format.js", "(f, cases) => cases.map(([v, p, u, signed]) => f.number(v, p, u, {signed}))", cases)
    assert shown == [formatting.number(v, p, u, signed=s) for v, p, u, s in cases]


def test_other_words_as_in_the_terminal(run: RunScript) -> None:
    assert run("format.js", "(f) => [f.interval(0.5, 0.75, 1), f.interval(null, 1, 1), f.number(null, 1)]") == [
        formatting.interval(0.5, 0.75, 1),
        "",
        formatting.MISSING,
    ]
    counts = [0, 7, 999, 1000, 50_000, 1_234_567]
    assert run("format.js", "(f, n) => n.map(f.count)", counts) == [formatting.count(n) for n in counts]
    levels = [0.95, 0.995, 0.9, 0.6827]
    assert run("format.js", "(f, n) => n.map(f.levelText)", levels) == [formatting.level_text(n) for n in levels]
    sizes = [1, 114, 999, 1000, 50_000]
    assert run("format.js", "(f, n) => n.map((k) => f.digits(k))", sizes) == [formatting.digits(n) for n in sizes]
    assert run("format.js", "(f, names) => f.few(names, 2)", ["a", "b", "c"]) == listed(["a", "b", "c"], most=2)


@pytest.mark.parametrize("name", list(SCALES))
def test_scales(run: RunScript, name: str) -> None:
    p = np.concatenate([np.linspace(0.001, 0.999, 200), [1e-9, 1e-5, 0.5, 1 - 1e-5, 1 - 1e-9]])
    forward, back = run(
        "scales.js",
        f"(s, p) => {{ const {{forward, inverse}} = s.SCALES.{name};"
        " return [p.map(forward), p.map((v) => inverse(forward(v)))]; }",
        p.tolist(),
    )
    np.testing.assert_allclose(forward, SCALES[name].forward(p), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(back, p, rtol=1e-9)


def test_students_quantile(run: RunScript) -> None:
    freedom = [1, 2, 3, 4, 7, 8, 76, 301]
    for level in (0.9, 0.95, 0.99):
        quantiles = run("scales.js", "(s, [level, ns]) => ns.map((n) => s.studentQuantile(level, n))", [level, freedom])
        np.testing.assert_allclose(quantiles, t.ppf((1 + level) / 2, freedom), rtol=1e-9)


def cells(values: np.ndarray[Any, Any], n: int) -> list[list[float]]:
    low, high = clopper_pearson(values * n, np.full(len(values), float(n)), 0.95)
    return [[float(v), float(a), float(b), n] for v, a, b in zip(values, low, high, strict=True)]


def models(seed: int, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 2.5, n)
    return 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(-(0.9 * z - 0.6 + rng.normal(0, 0.08, n))))


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize(("seed", "n"), [(0, 12), (1, 78), (2, 3)])
def test_line_and_robustness(run: RunScript, scale: str, seed: int, n: int) -> None:
    """Slope, intercept, r2 and their intervals, and rho with its interval, to nearly all digits."""
    x, y = models(seed, n)
    names = [f"m{i}" for i in range(n)]
    line = fit(x, y, models=names, scale=scale, unit="fraction")
    result = effective_robustness(x, y, line, models=names, n_x=5000, n_y=2000, unit="fraction")
    found = run(
        "fit.js",
        """(f, {xs, ys, scale}) => {
            const points = xs.map((x, i) => ({name: `m${i}`, x: x[0], y: ys[i][0]}));
            const parts = f.fitBaseline(points, scale, {level: 0.95, pivot: null, leastModels: 3});
            const {slope, intercept, r2, n, slopeInterval, interceptInterval} = parts[0].line;
            const rho = xs.map((x, i) => f.effectiveRobustness(x, ys[i], parts));
            return {slope, intercept, r2, n, slopeInterval, interceptInterval, rho};
        }""",
        {"xs": cells(x, 5000), "ys": cells(y, 2000), "scale": scale},
    )
    assert line.slope_interval is not None and line.intercept_interval is not None
    assert found["n"] == line.n
    for key, value in (("slope", line.slope), ("intercept", line.intercept), ("r2", line.r2)):
        assert found[key] == pytest.approx(value, rel=1e-9, abs=1e-10)
    assert found["slopeInterval"] == pytest.approx(list(line.slope_interval), rel=1e-7)
    assert found["interceptInterval"] == pytest.approx(list(line.intercept_interval), rel=1e-7)
    for row, shown in zip(result.rows, found["rho"], strict=True):
        assert shown["rho"] == pytest.approx(row.rho, abs=1e-10)
        assert [shown["low"], shown["high"]] == pytest.approx([row.low, row.high], abs=1e-8)
        assert shown["extrapolated"] == row.extrapolated


def test_two_lines_around_a_pivot(run: RunScript) -> None:
    x, y = models(3, 40)
    pivot = float(np.sort(x)[17])
    knee = fit_piecewise(x, y, pivot=pivot, unit="fraction")
    found = run(
        "fit.js",
        """(f, {xs, ys, pivot}) => f.fitBaseline(xs.map((x, i) => ({name: `m${i}`, x, y: ys[i]})), "logit",
            {level: 0.95, pivot, leastModels: 3})
            .map(({side, line}) => [side, line.slope, line.n, ...line.slopeInterval])""",
        {"xs": x.tolist(), "ys": y.tolist(), "pivot": pivot},
    )
    for (side, slope, n, *ends), part in zip(found, (knee.below, knee.above), strict=True):
        assert side in ("below", "above") and n == part.n
        assert slope == pytest.approx(part.slope) and ends == pytest.approx(list(part.slope_interval or ()))


def test_no_line_where_none_is_determined(run: RunScript) -> None:
    reason = "(f, points) => f.fitBaseline(points, 'logit', {level: 0.95, pivot: null, leastModels: 3})[0].line.reason"
    two = [{"name": "a", "x": 0.5, "y": 0.4}, {"name": "b", "x": 0.6, "y": 0.5}]
    assert "at least 3 models" in run("fit.js", reason, two)
    same = [{"name": str(i), "x": 0.5, "y": 0.1 * (i + 1)} for i in range(4)]
    assert "the same number on the x axis" in run("fit.js", reason, same)
    flat = [{"name": str(i), "x": 0.1 * (i + 1), "y": 0.5} for i in range(4)]
    r2 = "(f, points) => f.fitBaseline(points, 'logit', {level: 0.95, pivot: null, leastModels: 3})[0].line.r2"
    assert run("fit.js", r2, flat) is None


def test_relative_robustness(run: RunScript) -> None:
    result = relative_robustness({"base": 0.6, "mine": 0.7}, {"mine": "base"}, n_y=500, unit="fraction").rows[0]
    base, mine = cells(np.array([0.6, 0.7]), 500)
    found = run("fit.js", "(f, [a, b]) => f.relativeRobustness(b, a)", [base, mine])
    assert [found["tau"], found["low"], found["high"]] == pytest.approx([result.tau, result.low, result.high])
    assert run("fit.js", "(f) => f.relativeRobustness([0.7, null, null, null], [0.6, 0.5, 0.7, 9]).low") is None


LIMITS = [
    (0.002, 0.999), (0.4, 0.85), (0.55, 0.9), (0.61, 0.68), (0.755, 0.757), (0.9, 0.999), (0.0001, 0.02), (0.0, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("limits", LIMITS)
def test_ticks(run: RunScript, scale: str, limits: tuple[float, float]) -> None:
    """Inside the axis, apart, in order, several, and round: few digits beyond what tells them apart."""
    low, high = np.clip(limits, *((0, 1) if scale == "linear" else (1e-4, 1 - 1e-4)))
    found = run(
        "scales.js",
        """(s, {scale, low, high}) => {
            const f = s.SCALES[scale].forward;
            const axis = s.makeAxis(s.SCALES[scale], f(low), f(high), 0, 600);
            const ticks = s.ticks(axis, 40);
            return ticks.map((tick) => [tick, axis.place(tick / 100)]);
        }""",
        {"scale": scale, "low": float(low), "high": float(high)},
    )
    values, places = np.array(found).T
    assert 4 <= len(values) <= 16
    assert (np.diff(values) > 0).all() and (np.diff(places) >= 39.999).all()
    assert places.min() >= -1e-6 and places.max() <= 600 + 1e-6
    finest = np.diff(values).min()
    assert all(
        len(f"{value:.10g}") <= len(f"{value:.{max(0, int(np.ceil(-np.log10(finest))))}f}") + 1 for value in values
    )


def test_search_words(run: RunScript) -> None:
    names = ["resnet50_swsl", "ResNet-50", "vgg16"]
    found = run("format.js", "(f, names) => names.map((n) => [f.matches(n, 'RES 50'), f.matches(n, '16')])", names)
    assert found == [[True, False], [True, False], [False, True]]


def test_long_names_keep_both_ends(run: RunScript) -> None:
    short = run("format.js", "(f) => [f.shortened('abc', 5), f.shortened('abcdefghij', 5)]")
    assert short == ["abc", "ab…ij"]
