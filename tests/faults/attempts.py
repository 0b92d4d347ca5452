"""Attempts at a silently wrong number: files as people really leave them, each with the true accuracy known.

Every attempt changes a good folder (`start`) and names the command that then runs. ``docs/attempts.md`` lists how each
ends, and `test_attempts` compares.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.commands import call
from tests.runs.helpers import write_onnx_model

Words = tuple[object, ...]
Attempt = Callable[[Path], Words]
CLASSES = ("blue", "green", "red")
PER_CLASS = 4
#: The images that the recorded model gets wrong, by their place: no reordering of classes or images keeps all of them.
WRONG = {1: "green", 6: "red", 7: "red"}
#: The accuracy of the recorded model, and of the model that computes.
TRUTH = (12 - len(WRONG)) / 12
ATTEMPTS: dict[str, Attempt] = {}


def attempt(function: Attempt) -> Attempt:
    ATTEMPTS[function.__name__.replace("_", " ")] = function
    return function


def variants(name: str, **texts: Callable[[str], str | bytes]) -> None:
    """Attempts that change the text of the good table of predictions."""
    for kind, change in texts.items():

        def run(folder: Path, change: Callable[[str], str | bytes] = change) -> Words:
            text = change(good_table())
            content = text if isinstance(text, bytes) else text.encode()
            (folder / "model.csv").write_bytes(content)
            return importing("model.csv")

        ATTEMPTS[f"{name}: {kind.replace('_', ' ')}"] = run


# -- the good folder -----------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, str, str]]:
    """Id, class and prediction of every image, in the order of the dataset."""
    table: list[tuple[str, str, str]] = []
    for key in CLASSES:
        for number in range(PER_CLASS):
            table.append((f"{key}/{number}.png", key, WRONG.get(len(table), key)))
    return table


def good_table() -> str:
    return "id,prediction\n" + "".join(f"{image},{prediction}\n" for image, _, prediction in rows())


def scores() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Scores of every image, whose best class is the prediction."""
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 1, (len(rows()), len(CLASSES)))
    for place, (_, _, prediction) in enumerate(rows()):
        values[place, CLASSES.index(prediction)] += 2
    return values


def start(folder: Path) -> None:
    """Images, whose class is their brightest channel but for three of them, and a function that finds it."""
    rng = np.random.default_rng(0)
    for image, _, prediction in rows():
        pixels = rng.integers(0, 100, (32, 32, 3))
        pixels[..., 2 - CLASSES.index(prediction)] += 100
        path = folder / "data" / image
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "model.py").write_text(
        "def make():\n    return lambda images: images.astype('float32').mean(axis=(1, 2))[:, ::-1] / 20\n"
    )
    (folder / "labels.txt").write_text("\n".join(CLASSES) + "\n")


def importing(file: str, *words: object, data: str = "data", labels: str = "folders") -> Words:
    return ("import", file, "-s", "photos", "--data", data, "--labels", labels, "-w", "w", "--json", *words)


def evaluating(*words: object, data: str = "data", labels: str = "labels.txt") -> Words:
    geometry = "size=32,resize=squash,interpolation=bilinear"
    model = ("eval", "model.py:make", "--preprocess", geometry)
    return (*model, "--data", data, "--labels", labels, "-w", "w", "--json", *words)


def write_rows(path: Path, columns: list[str], table: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(table)


# -- tables of predictions: their text -----------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _per_line(change: Callable[[str, str], str]) -> Callable[[str], str]:
    """Change every line but the header, given its id and its prediction."""

    def changed(text: str) -> str:
        header, *lines = text.splitlines()
        return "\n".join([header, *(change(*line.split(",")) for line in lines)]) + "\n"

    return changed


variants(
    "a table of predictions",
    rows_in_reverse=lambda text: "".join([_lines(text)[0], *_lines(text)[:0:-1]]),
    a_byte_order_mark=lambda text: b"\xef\xbb\xbf" + text.encode(),
    utf_16=lambda text: text.encode("utf-16"),
    lines_end_with_CRLF=lambda text: text.replace("\n", "\r\n"),
    lines_end_with_CR=lambda text: text.replace("\n", "\r"),
    empty_lines_between=lambda text: text.replace("\n", "\n\n"),
    no_end_of_the_last_line=lambda text: text.rstrip("\n"),
    cut_in_the_last_line=lambda text: text[:-3],
    cut_after_half_of_the_lines=lambda text: "".join(_lines(text)[:7]),
    the_header_twice=lambda text: text + text,
    every_line_twice=lambda text: text + "".join(_lines(text)[1:]),
    one_line_twice_with_another_prediction=lambda text: text + "blue/1.png,blue\n",
    one_line_twice_with_the_same_prediction=lambda text: text + "blue/0.png,blue\n",
    an_image_that_does_not_exist=lambda text: text + "blue/9.png,blue\n",
    no_header=lambda text: "".join(_lines(text)[1:]),
    semicolons=lambda text: text.replace(",", ";"),
    tabs=lambda text: text.replace(",", "\t"),
    blanks_after_commas=lambda text: text.replace(",", ", "),
    quotes_around_everything=_per_line(lambda image, key: f'"{image}","{key}"'),
    single_quotes=_per_line(lambda image, key: f"'{image}','{key}'"),
    ids_with_backslashes=lambda text: text.replace("/", "\\"),
    ids_begin_with_a_dot=_per_line(lambda image, key: f"./{image},{key}"),
    ids_begin_with_the_folder=_per_line(lambda image, key: f"data/{image},{key}"),
    ids_without_extension=lambda text: text.replace(".png", ""),
    ids_without_folder=_per_line(lambda image, key: f"{image.split('/')[1]},{key}"),
    ids_in_capitals=_per_line(lambda image, key: f"{image.upper()},{key}"),
    ids_end_with_blanks=_per_line(lambda image, key: f"{image} ,{key}"),
    ids_quoted_as_in_urls=lambda text: text.replace("/", "%2F"),
    classes_in_capitals=_per_line(lambda image, key: f"{image},{key.upper()}"),
    classes_end_with_blanks=_per_line(lambda image, key: f"{image},{key} "),
    classes_by_number=_per_line(lambda image, key: f"{image},{CLASSES.index(key)}"),
    classes_by_number_from_one=_per_line(lambda image, key: f"{image},{CLASSES.index(key) + 1}"),
    classes_by_number_as_fractions=_per_line(lambda image, key: f"{image},{CLASSES.index(key)}.0"),
    classes_by_number_from_one_as_fractions=_per_line(lambda image, key: f"{image},{CLASSES.index(key) + 1}.0"),
    numbers_with_exponents=_per_line(lambda image, key: f"{image},{CLASSES.index(key)}e0"),
    negative_numbers=_per_line(lambda image, key: f"{image},{CLASSES.index(key) - 3}"),
    a_class_that_does_not_exist=lambda text: text.replace("red\n", "crimson\n"),
    an_empty_prediction=lambda text: text.replace("0.png,red", "0.png,"),
    the_prediction_nan=lambda text: text.replace("0.png,red", "0.png,nan"),
    half_of_the_classes_by_number=lambda text: text.replace(",blue", ",0"),
    a_comment_line=lambda text: "# made by a script\n" + text,
    a_second_column_of_predictions=_per_line(lambda image, key: f"{image},{key},blue"),
    columns_exchanged=lambda text: "\n".join(",".join(line.split(",")[::-1]) for line in text.splitlines()) + "\n",
    a_null_character=lambda text: text.replace("0.png,red", "0.png\0,red"),
)


# -- tables of predictions: scores and formats ---------------------------------------------------------------------


def _scores_table(folder: Path, values: np.ndarray[Any, Any], columns: list[str]) -> Words:
    table: list[tuple[object, ...]] = []
    for (image, _, _), line in zip(rows(), values, strict=True):
        table.append((image, *(str(value) for value in line)))
    write_rows(folder / "model.csv", ["id", *(f"score_{column}" for column in columns)], table)
    return importing("model.csv", labels="labels.txt")


@attempt
def scores_with_columns_in_another_order(folder: Path) -> Words:
    return _scores_table(folder, scores()[:, ::-1], list(CLASSES[::-1]))


@attempt
def scores_with_a_column_missing(folder: Path) -> Words:
    return _scores_table(folder, scores()[:, :2], list(CLASSES[:2]))


@attempt
def scores_with_one_column_twice(folder: Path) -> Words:
    return _scores_table(folder, scores(), ["blue", "green", "green"])


@attempt
def scores_with_decimal_commas(folder: Path) -> Words:
    words = _scores_table(folder, scores().round(3), list(CLASSES))
    text = (folder / "model.csv").read_text()
    (folder / "model.csv").write_text(text.replace(",", ";").replace(".", ",").replace(",png", ".png"))
    return words


@attempt
def scores_in_percent(folder: Path) -> Words:
    values = np.exp(scores())
    return _scores_table(folder, 100 * values / values.sum(axis=1, keepdims=True), list(CLASSES))


@attempt
def scores_of_which_one_is_nan(folder: Path) -> Words:
    values = scores()
    values[0, 2] = np.nan
    return _scores_table(folder, values, list(CLASSES))


@attempt
def scores_of_which_one_is_infinite(folder: Path) -> Words:
    values = scores()
    values[0, 2] = np.inf
    return _scores_table(folder, values, list(CLASSES))


@attempt
def scores_that_are_all_equal(folder: Path) -> Words:
    return _scores_table(folder, np.ones_like(scores()), list(CLASSES))


@attempt
def scores_beyond_single_precision(folder: Path) -> Words:
    return _scores_table(folder, 1e300 * scores(), list(CLASSES))


@attempt
def scores_that_differ_beyond_single_precision(folder: Path) -> Words:
    return _scores_table(folder, 1e8 + scores(), list(CLASSES))


@attempt
def an_array_in_half_precision(folder: Path) -> Words:
    np.savez(folder / "model.npz", scores=scores().astype(np.float16))
    return importing("model.npz", "--in-order")


@attempt
def an_array_of_whole_numbers(folder: Path) -> Words:
    np.save(folder / "model.npy", (255 * scores() / scores().max()).astype(np.uint8))
    return importing("model.npy", "--in-order")


@attempt
def an_array_on_its_side(folder: Path) -> Words:
    np.save(folder / "model.npy", scores().T)
    return importing("model.npy", "--in-order")


@attempt
def an_array_with_an_image_too_few(folder: Path) -> Words:
    np.save(folder / "model.npy", scores()[:-1])
    return importing("model.npy", "--in-order")


@attempt
def an_array_with_an_image_too_many(folder: Path) -> Words:
    np.save(folder / "model.npy", np.vstack([scores(), scores()[:1]]))
    return importing("model.npy", "--in-order")


@attempt
def an_array_in_the_other_byte_order(folder: Path) -> Words:
    np.save(folder / "model.npy", scores().astype(">f4"))
    return importing("model.npy", "--in-order")


@attempt
def an_array_in_the_order_of_fortran(folder: Path) -> Words:
    np.save(folder / "model.npy", np.asfortranarray(scores()))
    return importing("model.npy", "--in-order")


@attempt
def an_array_of_complex_numbers(folder: Path) -> Words:
    np.save(folder / "model.npy", scores().astype(np.complex64))
    return importing("model.npy", "--in-order")


@attempt
def an_array_of_objects(folder: Path) -> Words:
    np.save(folder / "model.npy", scores().astype(object), allow_pickle=True)
    return importing("model.npy", "--in-order")


@attempt
def an_archive_of_two_arrays(folder: Path) -> Words:
    np.savez(folder / "model.npz", scores=scores(), prediction=np.zeros(12, int))
    return importing("model.npz", "--in-order")


@attempt
def an_archive_with_a_member_twice(folder: Path) -> Words:
    with zipfile.ZipFile(folder / "model.npz", "w") as archive:
        for values in (scores()[:, ::-1], scores()):
            buffer = io.BytesIO()
            np.save(buffer, values)
            archive.writestr("scores.npy", buffer.getvalue())
    return importing("model.npz", "--in-order")


def _parquet(folder: Path, table: pa.Table) -> Words:
    pq.write_table(table, folder / "model.parquet")
    return importing("model.parquet")


@attempt
def parquet_with_dictionaries(folder: Path) -> Words:
    ids = pa.array([row[0] for row in rows()]).dictionary_encode()
    return _parquet(
        folder, pa.table({"id": ids, "prediction": pa.array([row[2] for row in rows()]).dictionary_encode()})
    )


@attempt
def parquet_with_a_null(folder: Path) -> Words:
    predictions = [row[2] for row in rows()]
    return _parquet(folder, pa.table({"id": [row[0] for row in rows()], "prediction": [None, *predictions[1:]]}))


@attempt
def parquet_with_numbers_as_floats(folder: Path) -> Words:
    predictions = pa.array([float(CLASSES.index(row[2])) for row in rows()])
    return _parquet(folder, pa.table({"id": [row[0] for row in rows()], "prediction": predictions}))


@attempt
def parquet_with_numbers_between_classes(folder: Path) -> Words:
    predictions = pa.array([CLASSES.index(row[2]) + 0.4 for row in rows()])
    return _parquet(folder, pa.table({"id": [row[0] for row in rows()], "prediction": predictions}))


@attempt
def parquet_with_an_index_column_of_pandas(folder: Path) -> Words:
    table = pa.table(
        {
            "id": [row[0] for row in rows()],
            "prediction": [row[2] for row in rows()],
            "__index_level_0__": list(range(12))[::-1],
        }
    )
    return _parquet(folder, table)


@attempt
def parquet_with_the_last_bytes_missing(folder: Path) -> Words:
    words = _parquet(folder, pa.table({"id": [row[0] for row in rows()], "prediction": [row[2] for row in rows()]}))
    (folder / "model.parquet").write_bytes((folder / "model.parquet").read_bytes()[:-20])
    return words


@attempt
def a_compressed_table(folder: Path) -> Words:
    (folder / "model.csv.gz").write_bytes(gzip.compress(good_table().encode()))
    return importing("model.csv.gz")


@attempt
def a_table_with_labels_of_another_version(folder: Path) -> Words:
    table: list[tuple[object, ...]] = [(image, "red" if key == "blue" else key, guess) for image, key, guess in rows()]
    write_rows(folder / "model.csv", ["id", "label", "prediction"], table)
    return importing("model.csv")


# -- label files ---------------------------------------------------------------------------------------------------


def _label_file(name: str, file: str, content: str) -> None:
    def run(folder: Path) -> Words:
        (folder / file).write_text(content)
        return evaluating(labels=file)

    ATTEMPTS[f"a label file {name}"] = run


_label_file("with empty lines", "l.txt", "blue\n\ngreen\n\nred\n")
_label_file("with blanks around the names", "l.txt", " blue \n green\nred\t\n")
_label_file("with CRLF", "l.txt", "blue\r\ngreen\r\nred\r\n")
_label_file("with a byte order mark", "l.txt", "\ufeffblue\ngreen\nred\n")
_label_file("with a name twice", "l.txt", "blue\ngreen\nred\nred\n")
_label_file("in another order", "l.txt", "red\ngreen\nblue\n")
_label_file("with a class too many in front", "l.txt", "background\nblue\ngreen\nred\n")
_label_file("with a class too few", "l.txt", "blue\ngreen\n")
_label_file("in capitals", "l.txt", "BLUE\nGREEN\nRED\n")
_label_file("with numbers before the names", "l.txt", "0 blue\n1 green\n2 red\n")
_label_file("with a comment", "l.txt", "# classes\nblue\ngreen\nred\n")
_label_file("of an index to a class", "l.json", json.dumps({"2": "red", "0": "blue", "1": "green"}))
_label_file("of an index from one", "l.json", json.dumps({"1": "blue", "2": "green", "3": "red"}))
_label_file("of an index with a gap", "l.json", json.dumps({"0": "blue", "1": "green", "3": "red"}))
_label_file("with a key twice", "l.json", '{"0": "blue", "1": "green", "2": "red", "0": "red"}')
_label_file("with lines out of order", "l.csv", "index,key\n2,red\n0,blue\n1,green\n")
_label_file("with an index twice", "l.csv", "index,key\n0,blue\n1,green\n1,red\n")


# -- lists of images -----------------------------------------------------------------------------------------------


def _manifest(name: str, change: Callable[[list[tuple[str, str, str]]], str], file: str = "images.csv") -> None:
    def run(folder: Path) -> Words:
        (folder / "data" / file).write_text(change(rows()))
        return evaluating(data=f"data/{file}")

    ATTEMPTS[f"a list of images {name}"] = run


def _listed(header: str, line: Callable[[int, str, str], str]) -> Callable[[list[tuple[str, str, str]]], str]:
    def text(table: list[tuple[str, str, str]]) -> str:
        lines = [line(place, image, key) for place, (image, key, _) in enumerate(table)]
        return "\n".join([header, *lines]) + "\n"

    return text


_manifest("in reverse", lambda table: "path,label\n" + "".join(f"{image},{key}\n" for image, key, _ in table[::-1]))
_manifest("by number", _listed("path,label", lambda _, image, key: f"{image},{CLASSES.index(key)}"))
_manifest("by number from one", _listed("path,label", lambda _, image, key: f"{image},{CLASSES.index(key) + 1}"))
_manifest("by fractions", _listed("path,label", lambda _, image, key: f"{image},{CLASSES.index(key)}.0"))
_manifest("with blanks", _listed("path,label", lambda _, image, key: f"{image}, {key} "))
_manifest("with backslashes", _listed("path,label", lambda _, image, key: image.replace("/", "\\") + f",{key}"))
_manifest("with an image twice", lambda table: _listed("path,label", lambda _, i, k: f"{i},{k}")([*table, table[0]]))
_manifest(
    "with an image in two classes",
    lambda table: _listed("path,label", lambda _, i, k: f"{i},{k}")([*table, (table[0][0], "red", "red")]),
)
_manifest("without a label", _listed("path,label", lambda place, image, key: f"{image},{key if place else ''}"))
_manifest("with an image that is missing", _listed("path,label", lambda p, i, k: f"{i if p else 'blue/9.png'},{k}"))
_manifest(
    "with a column too many in a line", _listed("path,label", lambda p, i, k: f"{i},{k}{',red' if p == 0 else ''}")
)
_manifest("with two columns of labels", _listed("path,label,label", lambda _, i, k: f"{i},{k},red"))
_manifest("out of the folder", _listed("path,label", lambda _, image, key: f"../data/{image},{key}"))


def _json_lines(table: list[tuple[str, str, str]]) -> str:
    return "".join(json.dumps({"path": image, "label": key}) + "\n" for image, key, _ in table)


def _json_lines_with_labels_twice(table: list[tuple[str, str, str]]) -> str:
    return _json_lines(table).replace('"label"', '"label": "red", "label"')


_manifest("with lines of JSON", _json_lines, "images.jsonl")
_manifest("with keys twice in JSON", _json_lines_with_labels_twice, "images.jsonl")


# -- images --------------------------------------------------------------------------------------------------------


def _image(name: str, change: Callable[[Path], object]) -> None:
    """The first image, which the model gets right, is saved in another way."""

    def run(folder: Path) -> Words:
        change(folder / "data" / "blue" / "0.png")
        return evaluating()

    ATTEMPTS[f"an image {name}"] = run


def _saved(path: Path, mode: str, **options: Any) -> None:
    Image.open(path).convert(mode).save(path, "PNG", **options)


def _as_other(path: Path, file_format: str) -> None:
    Image.open(path).convert("RGB").save(path, file_format)


def _animate(path: Path) -> None:
    Image.open(path).save(path, "GIF", save_all=True, append_images=[Image.new("RGB", (32, 32))])


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip_pixels(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.png")


_image("with a palette", lambda path: _saved(path, "P"))
_image("with 16 bits and no colour", lambda path: Image.open(path).convert("I;16").save(path))
_image("with transparency", lambda path: _saved(path, "RGBA"))
_image("that is transparent throughout", lambda path: Image.new("RGBA", (32, 32), (0, 0, 0, 0)).save(path))
_image("that is a JPEG by content", lambda path: _as_other(path, "JPEG"))
_image("that is an animation", _animate)
_image("that is empty", lambda path: path.write_bytes(b""))
_image("that is cut", _half)
_image("with a flipped bit", _flip_pixels)
_image("followed by another file", lambda path: path.write_bytes(path.read_bytes() + b"PK\x03\x04" + bytes(50)))
_image("that is a text", lambda path: path.write_text("404: Not Found"))
_image("that is a web page", lambda path: path.write_text("<!doctype html><html></html>"))
_image("of one pixel", lambda path: Image.new("RGB", (1, 1), (0, 0, 255)).save(path))
_image("that is a folder", _replace_by_folder)
_image("that is a link to nothing", _replace_by_link)


# -- folders of images ---------------------------------------------------------------------------------------------


@attempt
def files_of_other_programs_beside_the_images(folder: Path) -> Words:
    for name in (".DS_Store", "Thumbs.db", "._0.png", "desktop.ini", "0.png.part", "notes.txt"):
        (folder / "data" / "blue" / name).write_bytes(b"x")
    return evaluating()


@attempt
def a_class_folder_that_is_empty(folder: Path) -> Words:
    (folder / "data" / "aqua").mkdir()
    return evaluating()


@attempt
def a_class_folder_of_another_experiment(folder: Path) -> Words:
    shutil.copytree(folder / "data" / "red", folder / "data" / "aqua")
    return evaluating()


@attempt
def a_copy_of_an_image_in_another_class(folder: Path) -> Words:
    shutil.copy(folder / "data" / "blue" / "0.png", folder / "data" / "red" / "copy.png")
    return evaluating()


@attempt
def class_folders_below_another_folder(folder: Path) -> Words:
    (folder / "outer").mkdir()
    (folder / "data").rename(folder / "outer" / "data")
    return evaluating(data="outer")


@attempt
def class_folders_with_composed_and_decomposed_names(folder: Path) -> Words:
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "é")
        (folder / "data" / name).mkdir()
        shutil.copy(folder / "data" / "red" / "0.png", folder / "data" / name)
    return evaluating(labels="folders")


@attempt
def class_folders_that_are_links_to_one_folder(folder: Path) -> Words:
    shutil.rmtree(folder / "data" / "red")
    (folder / "data" / "red").symlink_to("blue")
    return evaluating()


# -- tables of predictions: what their columns say --------------------------------------------------------------------


def _table(folder: Path, columns: Callable[[int, str, str], dict[str, object]]) -> Words:
    """A table whose columns are made of the number, the class and the prediction of each image."""
    table: list[dict[str, object]] = []
    for number, (image, key, prediction) in enumerate(rows()):
        table.append({"id": image, **columns(number, key, prediction)})
    write_rows(folder / "model.csv", list(table[0]), [tuple(row.values()) for row in table])
    return importing("model.csv")


def columns_of(name: str, columns: Callable[[int, str, str], dict[str, object]]) -> None:
    """An attempt with a table that has these columns beside the ids."""
    ATTEMPTS[f"a table with {name}"] = lambda folder: _table(folder, columns)


def _another(key: str) -> str:
    return "blue" if key == "red" else "red"


def _by_class(number: int, prefix: str, factor: float = 1) -> dict[str, object]:
    """Scores of an image in columns named by the classes, the last one first."""
    return {f"{prefix}{key}": factor * scores()[number, place] for place, key in reversed(list(enumerate(CLASSES)))}


def _sigmoids(number: int) -> dict[str, object]:
    return {f"score_{place}": 1 / (1 + np.exp(2 - 3 * score)) for place, score in enumerate(scores()[number])}


columns_of("labels that the images contradict", lambda n, key, answer: {"prediction": answer, "label": answer})
columns_of("confidences in percent", lambda n, key, answer: {"prediction": answer, "confidence": 50 + n})
columns_of("a confidence above one", lambda n, key, answer: {"prediction": answer, "confidence": 0.5 + n / 12})
columns_of("negative confidences", lambda n, key, answer: {"prediction": answer, "confidence": -0.5})
columns_of("decimal commas in confidences", lambda n, key, answer: {"prediction": answer, "confidence": "0,9"})
columns_of("a best class twice", lambda n, key, answer: {"top1": answer, "top2": answer})
columns_of("the second best class first", lambda n, key, answer: {"top2": _another(answer), "top1": answer})
columns_of("best classes from zero", lambda n, key, answer: {"top0": answer, "top1": _another(answer)})
columns_of("best classes from the second", lambda n, key, answer: {"top2": answer, "top3": _another(answer)})
columns_of("scores counted from one", lambda n, key, answer: {f"score_{i + 1}": scores()[n, i] for i in range(3)})
columns_of("scores named by class, the last first", lambda n, key, answer: _by_class(n, "logit_"))
columns_of("scores that are distances", lambda n, key, answer: _by_class(n, "score_", -1))
columns_of("probabilities beyond one", lambda n, key, answer: _by_class(n, "prob_"))
columns_of("a sigmoid per class", lambda n, key, answer: _sigmoids(n))
columns_of("classes that the scores contradict", lambda n, key, answer: {"prediction": key, **_by_class(n, "logit_")})


@attempt
def a_table_of_two_models_whose_names_differ_by_a_blank(folder: Path) -> Words:
    table = [(image, prediction, "a") for image, _, prediction in rows()]
    table += [(image, key, "a ") for image, key, _ in rows()]
    write_rows(folder / "model.csv", ["id", "prediction", "model"], [*table])
    return importing("model.csv")


@attempt
def a_table_in_a_setting_whose_maker_is_not_stated(folder: Path) -> Words:
    (folder / "model.csv").write_text(good_table())
    return ("import", "model.csv", "-s", "imagenet-c.fog.3", "--data", "data", "--labels", "folders", "-w", "w")


@attempt
def a_table_with_a_maker_for_a_setting_that_has_none(folder: Path) -> Words:
    (folder / "model.csv").write_text(good_table())
    return importing("model.csv", "--made-by", "released-files")


@attempt
def a_table_with_ids_that_are_composed_differently(folder: Path) -> Words:
    (folder / "data/red/0.png").rename(folder / "data/red/e\u0301.png")
    (folder / "model.csv").write_text(good_table().replace("red/0.png", "red/\u00e9.png"))
    return importing("model.csv")


def _with_truth(folder: Path, truth: list[tuple[str, str]]) -> Words:
    (folder / "model.csv").write_text(good_table())
    write_rows(folder / "truth.csv", ["id", "label"], [*truth])
    return (
        "import",
        "model.csv",
        "-s",
        "photos",
        "--truth",
        "truth.csv",
        "--labels",
        "labels.txt",
        "-w",
        "w",
        "--json",
    )


def _classes_by_image() -> list[tuple[str, str]]:
    return [(image, key) for image, key, _ in rows()]


@attempt
def true_classes_in_another_order(folder: Path) -> Words:
    return _with_truth(folder, _classes_by_image()[::-1])


@attempt
def true_classes_of_which_one_is_there_twice(folder: Path) -> Words:
    return _with_truth(folder, [*_classes_by_image(), ("blue/0.png", "red")])


@attempt
def true_classes_of_which_one_is_missing(folder: Path) -> Words:
    return _with_truth(folder, _classes_by_image()[1:])


# -- graphs --------------------------------------------------------------------------------------------------------

PIXELS = "size=32,resize=squash,interpolation=bilinear,mean=0,std=1,scale=1,colour=rgb"


def _graph(folder: Path, *steps: tuple[str, list[str], str], **attributes: Any) -> None:
    """A graph that ends in further steps (operator, inputs, output); their last output holds the scores."""
    import onnx

    write_onnx_model(folder / "net.onnx")
    model = onnx.load(folder / "net.onnx")
    for operator, inputs, output in steps:
        model.graph.node.append(onnx.helper.make_node(operator, inputs, [output], **attributes))
    if steps:
        model.graph.output[0].name = steps[-1][-1]
    zero = onnx.helper.make_tensor("zero", onnx.TensorProto.INT64, [], [0])
    model.graph.initializer.append(zero)
    onnx.save(model, folder / "net.onnx")


def _running(*words: object, stated: str = PIXELS) -> Words:
    return ("eval", "net.onnx", "--preprocess", stated, "--data", "data", "-w", "w", "--json", *words)


@attempt
def a_graph_as_it_should_be(folder: Path) -> Words:
    _graph(folder)
    return _running("--labels", "labels.txt")


@attempt
def a_graph_that_adds_random_numbers(folder: Path) -> Words:
    _graph(folder, ("RandomUniformLike", ["scores"], "noise"))
    import onnx

    model = onnx.load(folder / "net.onnx")
    model.graph.node.append(onnx.helper.make_node("Add", ["scores", "noise"], ["noisy"]))
    model.graph.output[0].name = "noisy"
    onnx.save(model, folder / "net.onnx")
    return _running("--labels", "labels.txt", "--batch-size", "1")


@attempt
def a_graph_with_two_outputs_of_which_the_first_is_wrong(folder: Path) -> Words:
    _graph(folder, ("Neg", ["scores"], "wrong"))
    import onnx

    model = onnx.load(folder / "net.onnx")
    second = model.graph.output.add()
    second.CopyFrom(model.graph.output[0])
    second.name = "scores"
    onnx.save(model, folder / "net.onnx")
    return _running("--labels", "labels.txt")


@attempt
def a_graph_that_sums_over_the_batch(folder: Path) -> Words:
    _graph(folder, ("CumSum", ["scores", "zero"], "summed"))
    return _running("--labels", "labels.txt")


@attempt
def a_graph_with_a_softmax_over_the_batch(folder: Path) -> Words:
    _graph(folder, ("Softmax", ["scores"], "shares"), axis=0)
    return _running("--labels", "labels.txt")


@attempt
def a_graph_whose_scores_are_no_numbers(folder: Path) -> Words:
    _graph(folder, ("Neg", ["scores"], "negative"), ("Log", ["negative"], "logarithms"))
    return _running("--labels", "labels.txt")


@attempt
def a_graph_that_gets_its_channels_in_the_wrong_order(folder: Path) -> Words:
    _graph(folder)
    return _running("--labels", "labels.txt", stated=PIXELS.replace("rgb", "bgr"))


@attempt
def a_graph_with_a_standard_deviation_of_zero(folder: Path) -> Words:
    _graph(folder)
    return _running("--labels", "labels.txt", stated=PIXELS.replace("std=1", "std=0"))


def beside(name: str, content: str, *words: object) -> None:
    """An attempt with a file beside the graph that describes it."""

    def run(folder: Path) -> Words:
        _graph(folder)
        (folder / "net.onnx.json").write_text(content)
        return _running(*words, stated=PIXELS.replace(",colour=rgb", ""))

    ATTEMPTS[f"a description beside a graph {name}"] = run


beside("with classes in another order", '{"labels": ["red", "green", "blue"]}')
beside("with channels in another order", '{"colour": "bgr"}', "--labels", "labels.txt")
beside("with a key twice", '{"name": "a", "name": "b"}', "--labels", "labels.txt")
beside("with a key that nobody knows", '{"preprocesing": {}}', "--labels", "labels.txt")


# -- orientation and transparency ----------------------------------------------------------------------------------


def _turn(folder: Path) -> None:
    """An image whose metadata say that the camera was held on its side."""
    path = folder / "data/red/0.png"
    image = Image.open(path)
    metadata = image.getexif()
    metadata[0x112] = 6
    image.save(path, exif=metadata)


@attempt
def an_image_that_was_taken_on_its_side(folder: Path) -> Words:
    _turn(folder)
    return evaluating()


@attempt
def an_image_that_was_taken_on_its_side_and_is_turned(folder: Path) -> Words:
    _turn(folder)
    return _stating(evaluating(), "exif=apply")


@attempt
def images_turned_and_not_turned_in_one_workspace(folder: Path) -> Words:
    _turn(folder)
    call(*_stating(evaluating(), "exif=apply"))
    return evaluating()


@attempt
def images_that_are_laid_on_white(folder: Path) -> Words:
    for path in (folder / "data").rglob("*.png"):
        image = Image.open(path)
        image.putalpha(0)
        image.save(path)
    return _stating(evaluating(), "alpha=white")


def _stating(words: Words, key: str) -> Words:
    """A command that states one more key of the preprocessing."""
    place = words.index("--preprocess") + 1
    return (*words[:place], f"{words[place]},{key}", *words[place + 1 :])


# -- results that are already there --------------------------------------------------------------------------------


def _again(name: str, change: Callable[[Path], object]) -> None:
    """The same command twice, with a change between."""

    def run(folder: Path) -> Words:
        from tests.commands import call

        with_change = evaluating()
        assert call(*with_change).exit_code == 0
        change(folder)
        return with_change

    ATTEMPTS[f"a second run after {name}"] = run


def _other_weights(folder: Path) -> None:
    text = (folder / "model.py").read_text().replace("mean(axis=(1, 2))", "mean(axis=(2, 1))")
    (folder / "model.py").write_text(text)


def _results(folder: Path) -> list[Path]:
    return sorted((folder / "w" / "predictions").rglob("*.parquet"))


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(path)
    changed = change(table)
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)


def _without(folder: Path, part: str) -> None:
    shutil.rmtree(folder / "w" / part)


def _forget_dates(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))


def _reverse_predictions(folder: Path) -> None:
    _rewrite(_results(folder)[0], lambda table: table.take(list(range(12))[::-1]))


def _exchange_an_image(folder: Path) -> None:
    shutil.copy(folder / "data/red/0.png", folder / "data/blue/0.png")


def _exchange_classes(folder: Path) -> None:
    for old, new in (("blue", "x"), ("red", "blue"), ("x", "red")):
        (folder / "data" / old).rename(folder / "data" / new)


_again("nothing", lambda folder: None)
_again("a change of the code that means nothing", _other_weights)
_again("the predictions lost a row", lambda folder: _rewrite(_results(folder)[0], lambda table: table.slice(0, 11)))
_again("the predictions were reversed", _reverse_predictions)
_again("the predictions were emptied", lambda folder: _results(folder)[0].write_bytes(b""))
_again("the predictions were removed", lambda folder: _results(folder)[0].unlink())
_again("the settings were removed", lambda folder: _without(folder, "settings"))
_again("the datasets were removed", lambda folder: _without(folder, "datasets"))
_again("the catalogue was removed", lambda folder: (folder / "w" / "catalogue.parquet").unlink(missing_ok=True))
_again("the records of runs were removed", lambda folder: _without(folder, "runs"))
_again("the behaviour of models was removed", lambda folder: _without(folder, "behaviour"))
_again("all dates were set to 1970", _forget_dates)
_again("images were renamed", lambda folder: (folder / "data/blue/0.png").rename(folder / "data/blue/zero.png"))
_again("an image was added", lambda folder: shutil.copy(folder / "data/blue/1.png", folder / "data/blue/9.png"))
_again("an image was removed", lambda folder: (folder / "data/blue/0.png").unlink())
_again("an image of another class took its place", _exchange_an_image)
_again("class folders changed their names", _exchange_classes)
