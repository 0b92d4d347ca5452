"""Reading tables of results and of models: shapes, units, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from shiftbench.errors import UnknownNameError
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.studies import Models, Results, StudyError, read_models, read_results, results_from_scores
from shiftbench.studies.study import ShiftAxes, Study, unlisted
from tests.raised import raises


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_wide_csv(tmp_path: Path) -> None:
    table = read_results(written(tmp_path / "r.csv", "model,val,shifted\na,70.5,60\nb,80,\nc,75,n/a\n"))
    assert table.unit == "percent" and table.models == ("a", "b", "c")
    assert table.of("shifted") == {"a": 60.0} and np.isnan(table.column("shifted")[1:]).all()
    with raises(UnknownNameError, name="shift", hint="did you mean 'shifted'?"):
        table.column("shift")
    by_pandas = read_results(written(tmp_path / "p.csv", ",val,shifted\na,70.5,60\nb,80,\nc,75,\n"))
    assert by_pandas.models == table.models and by_pandas.of("val") == table.of("val")


def test_parquet_is_the_same(tmp_path: Path) -> None:
    rows = pyarrow.table({"model": ["a", "b"], "val": [0.7, 0.8], "shifted": [0.6, None]})
    pyarrow.parquet.write_table(rows, tmp_path / "r.parquet")
    table = read_results(tmp_path / "r.parquet", sizes={"val": 500})
    assert table.unit == "fraction" and table.of("shifted") == {"a": 0.6} and table.size("val") == 500


def test_the_tables_that_we_write_are_read(tmp_path: Path) -> None:
    text = "classifier,setting,metric,value,low,high,n\na,val,top1,0.7,0.6,0.8,100\nb,val,top1,0.8,0.7,0.9,100\n"
    table = read_results(written(tmp_path / "r.csv", text))
    assert table.of("val") == {"a": 0.7, "b": 0.8}
    size = table.size("val")
    assert size is not None and size.tolist() == [100, 100]
    two = read_results(written(tmp_path / "t.csv", text + "a,val,top5,0.9,0.8,1,100\n"))
    assert two.settings == ("val:top1", "val:top5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("model,val\n", "empty"),
        ("name,val\na,1\n", "no column of model names"),
        ("model,val\na,seventy\n", "line 2, column 'val' is not a number"),
        ("model,val\na,70\na,71\n", "two different rows for one model"),
        ("model,val,val\na,70,71\n", "found:    val"),
        ("model,val\na,70,71\n", "line 2"),
        ("model,val,v2\na,70,0.6\nb,80,0.7\n", "percent and fractions in one table"),
        ("model,val,v2\na,0.7%,0.6\nb,0.8,0.7\n", "percent signs at some"),
        ("model,val,v2\na,0.7,0.6\nb,80%,70%\n", "percent and fractions in one table"),
        ("model,val,v2\na,70,60\nb,0.8,0.7\n", "percent and fractions in one table"),
        ("model,val\na,170\n", "170"),
        ("model,setting,value\na,val,0.5\na,val,0.6\n", "two values for one model and setting"),
    ],
)
def test_bad_tables_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_results(written(tmp_path / "r.csv", text))


def test_a_repeated_row_is_read_once_with_a_word(tmp_path: Path) -> None:
    table = read_results(written(tmp_path / "r.csv", "model,val\na,70\nb,71\na,70\n"))
    assert table.models == ("a", "b") and "1 model (a)" in table.notes[0]


@pytest.mark.parametrize("value", ["0.5", ""])
def test_a_repeated_row_of_a_long_table_is_read_once(tmp_path: Path, value: str) -> None:
    """Also where the number of images, or the accuracy itself, is missing: two missing numbers are the same."""
    row = f"a,val,{value}\n"
    once = read_results(written(tmp_path / "once.csv", f"model,setting,value\n{row}b,val,0.6\n"))
    twice = read_results(written(tmp_path / "twice.csv", f"model,setting,value\n{row}b,val,0.6\n{row}"))
    assert twice.models == once.models == ("a", "b") and twice.of("val") == once.of("val")


def test_unit_can_be_said(tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", "model,val,attack\na,70,0.6\nb,80,0.7\n")
    assert read_results(path, unit="percent").of("attack") == {"a": 0.6, "b": 0.7}
    with pytest.raises(StudyError, match="expected: 0 to 1"):
        read_results(path, unit="fraction")


def test_missing_file() -> None:
    with raises(StudyError, expected="a .csv or .parquet file"):
        read_results("nowhere.csv")
    with raises(StudyError, expected="a .csv or .parquet file"):
        read_models("nowhere.csv")


def test_scores_of_a_run() -> None:
    entries = [
        SettingScore("a", "val", Score("top1", 0.7, 0.6, 0.8, n=100, provenance="p")),
        SettingScore("b", "val", Score("top1", 0.8, 0.7, 0.9, n=100, provenance="q")),
        SettingScore("a", "fog", Score("top1", 0.5, 0.4, 0.6, n=100)),
    ]
    table = results_from_scores(entries)
    assert table.unit == "fraction" and table.of("fog") == {"a": 0.5} and "different provenance" in table.notes[0]
    with raises(StudyError, expected="one number for each model and setting"):
        results_from_scores([*entries, entries[0]])


def test_models(tmp_path: Path) -> None:
    text = "model,category,base_model,baseline,changes,licence\n"
    text += "a,standard,,1,,x\nb,Standard,,0,,y\nc,more_data,a,,data; size,z\n"
    models = read_models(written(tmp_path / "m.csv", text))
    assert models.baseline(["a", "b", "c", "d"]).tolist() == [True, False, False, False]
    assert models.others(["a", "b", "c", "d"]).tolist() == [False, False, True, False]
    assert (
        models.bases == {"c": "a"} and models["c"].changes == ("data", "size") and models["c"].extra == {"licence": "z"}
    )
    assert models.baseline(["a"], exclude=["A"]).tolist() == [False]
    assert models.category("d") == "" and len(models) == 3 and list(models) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,category\na,s\na,s\n", "line 3"),
        ("model,baseline\na,maybe\n", "maybe"),
        ("x\n1\n", "no column 'model'"),
    ],
)
def test_bad_models_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_models(written(tmp_path / "m.csv", text))


def test_testbed_list_is_understood(testbed_models: Models) -> None:
    assert len(testbed_models) == 338
    assert testbed_models["resnet50_swsl"].base_model == "resnet50"
    assert testbed_models["resnet50_aws_baseline"].baseline is False
    assert testbed_models.category("alexnet") == "standard"


def test_without_a_list_of_models_the_package_s_own_is_used(testbed_results: Results, testbed_models: Models) -> None:
    marked = Study(testbed_results, testbed_models)
    ours = Study(testbed_results)
    assert marked.baseline.sum() == 78 and (marked.baseline == ours.baseline).all()


def test_study_says_what_it_lacks() -> None:
    table = Results(("a", "b"), ("val", "v2"), np.array([[0.7, 0.6], [0.8, 0.7]]), "fraction")
    study = Study(table)
    assert study.fit("val", "v2").n == 2 and "all of them" in unlisted(study)[0]
    with raises(StudyError, hint="give a table of models: models=..."):
        study.correlate(ShiftAxes("val", "v2"), ShiftAxes("val", "v2"))
    with pytest.raises(StudyError, match="no base models"):
        study.relative("v2")
    with raises(StudyError, found="categories (none)"):
        Study(table, Models({})).fit("val", "v2")
    with pytest.raises(UnknownNameError):
        study.shift("v3")
    assert study.shift("v2@val") == ShiftAxes("val", "v2")


def test_threshold_in_percent_or_as_a_fraction() -> None:
    values = np.array([[0.5, 0.4], [0.6, 0.5], [0.7, 0.6], [0.8, 0.7]])
    for unit, times in (("fraction", 1), ("percent", 100)):
        study = Study(Results(tuple("abcd"), ("val", "v2"), values * times, unit))
        assert study.fit("val", "v2", min_x=55).models == study.fit("val", "v2", min_x=0.55).models == ("b", "c", "d")
        # Beside accuracies in percent, 0.55 could be meant as 0.55 %.
        notes = [note for note in study.fit("val", "v2", min_x=0.55).notes if "min_x 0.55" in note]
        assert len(notes) == (study.results.unit == "percent")
        assert not any("min_x" in note for note in study.fit("val", "v2", min_x=55).notes)


def test_own_models_join_a_table_in_its_unit() -> None:
    table = Results(
        ("a", "b"), ("val", "v2"), np.array([[70.0, 60], [80, 70]]), "percent", {"v2": np.asarray(10_000.0)}
    )
    mine = Results(("m",), ("v2", "fog"), np.array([[0.65, 0.5]]), "fraction", {"v2": np.array([500.0])})
    both = table.joined(mine)
    assert both.settings == ("val", "v2", "fog") and both.of("v2") == {"a": 60.0, "b": 70.0, "m": 65.0}
    assert both.of("val") == {"a": 70.0, "b": 80.0} and both.of("fog") == {"m": 50.0}
    assert both.sizes["v2"].tolist() == [10_000, 10_000, 500] and "val" not in both.sizes
    with raises(StudyError, found="a, b", expected="one row for each model", hint="drop or rename one of them"):
        table.joined(table)


def test_a_misspelt_shift_names_the_shifts() -> None:
    study = Study(Results(("a", "b"), ("val", "fog"), np.array([[0.5, 0.4], [0.6, 0.5]]), "fraction"))
    assert study.shift("fog") == ShiftAxes("val", "fog")
    for name in ("imagnetv2", "fog@imagnetv2"):
        with raises(
            UnknownNameError, name="imagnetv2", hint="did you mean 'imagenetv2' or 'imagenet-r' or 'imagenet-a'?"
        ):
            study.shift(name)


@pytest.mark.parametrize("text", ["model,a\nm,0.5%\nn,\n", "model,setting,value,n\nm,a,0.5 %,200\nn,a,-,200\n"])
def test_percent_signs_mean_percent_below_one_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    found = read_results(tmp_path / "t.csv")
    assert found.unit == "percent" and found.of("a") == {"m": 0.5}


def test_a_single_fraction_among_percents_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("model,val,shifted\na,71.2,60.1\nb,75.3,63.5\nc,78.1,0.6321\nd,80.2,70.3\n")
    results = read_results(tmp_path / "t.csv")
    (note,) = results.notes
    assert "c in shifted (0.6321)" in note
    (tmp_path / "t.csv").write_text("model,val,hard\na,71.2,0.4\nb,75.3,1.5\nc,78.1,0.6321\nd,80.2,2.3\ne,80,3\n")
    assert read_results(tmp_path / "t.csv").notes == ()
