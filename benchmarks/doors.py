"""Every row of the tables in docs/models.md and docs/datasets.md, beside an independent count.

    python -m benchmarks.doors [--images 300]

Real CIFAR-10 images, a real ResNet-8 in as many formats as there are doors, and small networks of other libraries that
are trained for a minute. The independent count of right images uses Pillow, NumPy and the library of the model, nothing
of shiftbench. Rows whose library is not installed are listed as not run.
"""

from __future__ import annotations

import argparse
import base64
import csv
import importlib
import io
import json
import os
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from benchmarks.page import table
from shiftbench.classifiers.demo import _MLTK, _RESNET8_FILE, resnet8_graph
from shiftbench.classifiers.zoo import import_timm, import_torchvision
from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.datasets.registry_packages import extract
from shiftbench.labels import label_space

PAGES = Path(__file__).parents[1] / "docs"
BEGIN = "<!-- rows run: begin -->"
END = "<!-- rows run: end -->"
CLASSES = list(label_space("cifar-10").keys)
#: The order of the folders, which is that of the networks that are trained here.
SORTED = sorted(CLASSES)
RESNET8 = "size=32,resize=squash,interpolation=bilinear,mean=128,std=128,colour=rgb"
OWN = "size=32,resize=squash,interpolation=bilinear,mean=0.5,std=0.25,colour=rgb"
TRAINING_IMAGES = 1500
EPOCHS = 3

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One row of a table: what to type, and how many images are right by the independent count."""

    page: str
    title: str
    model: object
    data: Any
    right: int
    options: dict[str, Any]


class Material:
    """The images in a folder of classes, in memory in the order of the folder, and the ResNet-8 in its formats."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        test = open_dataset("cifar-10-test")
        self.photos = folder / "photos"
        entries = []
        for index in range(count):
            name = CLASSES[int(test.labels[index])]
            path = self.photos / name / f"{index:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(test.read(index).pixels).save(path)
            entries.append(path)
        #: Paths, pixels and classes as a plain program reads them.
        self.paths = sorted(entries)
        self.pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in self.paths])
        self.names = [path.parent.name for path in self.paths]
        train = open_dataset("cifar-10-train")
        chosen = range(TRAINING_IMAGES)
        self.training_pixels = np.stack([train.read(index).pixels for index in chosen])
        self.training_targets = [SORTED.index(CLASSES[int(train.labels[index])]) for index in chosen]
        self.classes = folder / "classes.txt"
        self.classes.write_text("\n".join(CLASSES) + "\n")
        package = extract(_MLTK, [_RESNET8_FILE]) / Path(_RESNET8_FILE).name
        with zipfile.ZipFile(package) as archive:
            archive.extract("image_classification.tflite", folder)
        self.onnx = folder / "model.onnx"
        resnet8_graph(package, (32, 32)).save(self.onnx)

    def right(self, scores: NDArray[np.floating[Any]], classes: Sequence[str]) -> int:
        """How many rows of scores have their largest value at the class of the image."""
        return sum(classes[int(row.argmax())] == name for row, name in zip(scores, self.names, strict=True))

    def resnet8_inputs(self) -> NDArray[np.float32]:
        pixels = self.pixels.transpose(0, 3, 1, 2).astype(np.float32)
        return np.asarray((pixels - 128) / 128, np.float32)

    def resnet8_scores(self) -> NDArray[np.float32]:
        """The scores of the ONNX file, by onnxruntime alone."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self.onnx), providers=["CPUExecutionProvider"])
        scores: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: self.resnet8_inputs()})[0]
        return scores

    def own_inputs(self, pixels: Pixels | None = None) -> Any:
        import torch

        array = self.pixels if pixels is None else pixels
        return torch.from_numpy((array.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25).float()

    def trained(self, network: Any) -> Any:
        """A torch module after a few epochs on real images."""
        torch: Any = importlib.import_module("torch")

        torch.manual_seed(0)
        inputs = self.own_inputs(self.training_pixels)
        targets = torch.tensor(self.training_targets)
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        network.train()
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(inputs)).split(64):
                outputs = network(inputs[batch])
                loss = torch.nn.functional.cross_entropy(getattr(outputs, "logits", outputs), targets[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return network.eval()

    def own_scores(self, network: Any) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            outputs = network(self.own_inputs())
        scores: NDArray[np.float32] = getattr(outputs, "logits", outputs).numpy()
        return scores


def resnet8_rows(material: Material) -> Iterator[Row]:
    """The ResNet-8 as a file, and behind servers."""
    right = material.right(material.resnet8_scores(), CLASSES)
    options = {"labels": str(material.classes), "preprocessing": RESNET8}

    def row(title: str, model: object, data: object = material.photos, **more: Any) -> Row:
        return Row("models.md", title, model, data, right, {**options, **more})

    yield row("ONNX file", str(material.onnx))
    with served(material) as (kserve, chat):
        yield row("a model behind a server", f"{kserve}/v2/models/resnet8")
        yield row("a vision-language model behind a server", f"chat:{chat}/v1?model=resnet8", preprocessing=GEOMETRY)
    rows = [("id", "prediction")]
    for path, scores in zip(material.paths, material.resnet8_scores(), strict=True):
        rows.append((path.relative_to(material.photos).as_posix(), CLASSES[int(scores.argmax())]))
    with (material.folder / "predictions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    yield row("predictions made elsewhere", str(material.folder / "predictions.csv"), preprocessing=None)


GEOMETRY = "size=32,resize=squash,interpolation=bilinear"


def openvino_row(material: Material) -> Row:
    import openvino

    file = material.folder / "model.xml"
    openvino.save_model(openvino.convert_model(material.onnx), file, compress_to_fp16=False)
    compiled = openvino.compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    scores = compiled(material.resnet8_inputs())[0]
    options = {"labels": str(material.classes), "preprocessing": RESNET8}
    return Row("models.md", "OpenVINO IR", str(file), material.photos, material.right(scores, CLASSES), options)


def litert_row(material: Material) -> Row:
    from ai_edge_litert.interpreter import Interpreter

    file = material.folder / "image_classification.tflite"
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    entry = interpreter.get_input_details()[0]
    output = interpreter.get_output_details()[0]["index"]
    scores = []
    for pixels in material.pixels:
        interpreter.set_tensor(entry["index"], (pixels.astype(np.int16) - 128).astype(np.int8)[None])
        interpreter.invoke()
        scores.append(interpreter.get_tensor(output)[0])
    options = {"labels": str(material.classes), "preprocessing": GEOMETRY + ",colour=rgb"}
    right = material.right(np.stack(scores), CLASSES)
    return Row("models.md", "LiteRT, quantised", str(file), material.photos, right, options)


def keras_row(material: Material) -> Row:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.Input((32, 32, 3)), keras.layers.Conv2D(16, 3, 2, activation="relu")]
    layers += [keras.layers.Conv2D(32, 3, 2, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(10)]
    network = keras.Sequential(layers)
    channels_last = material.own_inputs(material.training_pixels).permute(0, 2, 3, 1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss)
    network.fit(channels_last, np.array(material.training_targets), epochs=EPOCHS, verbose=0)
    file = material.folder / "model.keras"
    network.save(file)
    scores = network.predict(material.own_inputs().permute(0, 2, 3, 1), verbose=0)
    return Row(
        "models.md",
        "Keras 3 file",
        str(file),
        material.photos,
        material.right(scores, SORTED),
        {"labels": "folders", "preprocessing": OWN},
    )


def executorch_row(material: Material) -> Row:
    import torch
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    network = material.trained(small_network())
    file = material.folder / "model.pte"
    exported = torch.export.export(network, (torch.zeros(1, 3, 32, 32),))
    file.write_bytes(to_edge_transform_and_lower(exported).to_executorch().buffer)
    program = Runtime.get().load_program(file)
    method = program.load_method("forward")
    # The runtime reads the memory of a tensor as if its values lay in the order of its sides.
    inputs = material.own_inputs().contiguous()
    scores = [method.execute([image[None]])[0][0].detach().numpy().copy() for image in inputs]
    right = material.right(np.stack(scores), SORTED)
    options = {"labels": "folders", "preprocessing": OWN}
    return Row("models.md", "ExecuTorch program", str(file), material.photos, right, options)


def small_network() -> Any:
    import torch

    nn = torch.nn
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10)
    )


def torch_rows(material: Material) -> Iterator[Row]:
    """A torch module in Python and as files, and a function."""
    torch: Any = importlib.import_module("torch")

    network = material.trained(small_network())
    right = material.right(material.own_scores(network), SORTED)
    options = {"labels": "folders", "preprocessing": OWN, "name": "small"}

    def row(title: str, model: object, **more: Any) -> Row:
        return Row("models.md", title, model, material.photos, right, {**options, **more})

    yield row("torch module", network)
    torch.jit.trace(network, torch.zeros(1, 3, 32, 32)).save(str(material.folder / "script.pt"))
    yield row("TorchScript", str(material.folder / "script.pt"), trust=True)
    batch = torch.export.Dim("batch", min=1, max=256)
    exported = torch.export.export(network, (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, material.folder / "model.pt2")
    yield row("exported program", str(material.folder / "model.pt2"), trust=True)
    torch.save(network, material.folder / "pickled.pt")
    yield row("pickled module", str(material.folder / "pickled.pt"), trust=True)

    def function(images: Pixels) -> Any:
        with torch.inference_mode():
            return network(material.own_inputs(images))

    yield row("function", function, preprocessing=GEOMETRY)


def zoo_rows(material: Material) -> Iterator[Row]:
    """Architectures of timm, torchvision and transformers with weights that were trained here."""
    import torch

    timm = import_timm()
    torchvision = import_torchvision()
    networks = {
        "timm": ("test_efficientnet", timm.create_model("test_efficientnet", num_classes=10)),
        "torchvision": ("shufflenet_v2_x0_5", torchvision.models.shufflenet_v2_x0_5(num_classes=10)),
    }
    for library, (name, network) in networks.items():
        material.trained(network)
        file = material.folder / f"{library}.pth"
        torch.save(network.state_dict(), file)
        right = material.right(material.own_scores(network), SORTED)
        options = {"labels": "folders", "preprocessing": OWN}
        yield Row("models.md", f"{library}, your weights", f"{library}:{name}@{file}", material.photos, right, options)
    transformers: Any = importlib.import_module("transformers")
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10,
        id2label=dict(enumerate(SORTED)), label2id={name: i for i, name in enumerate(SORTED)},
    )  # fmt: skip
    network = material.trained(transformers.ResNetForImageClassification(config))
    folder = material.folder / "transformers"
    network.save_pretrained(folder)
    transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.25] * 3
    ).save_pretrained(folder)
    right = material.right(material.own_scores(network), SORTED)
    yield Row("models.md", "transformers classifier", f"hf:{folder}", material.photos, right, {"labels": "folders"})


def zero_shot_row(material: Material) -> Row:
    """An image encoder that is trained towards fixed vectors of the names, as a pair with a function for sentences."""
    import torch

    generator = torch.Generator().manual_seed(0)
    vectors = {name: torch.randn(32, generator=generator) for name in SORTED}

    def encode(sentences: Sequence[str]) -> Any:
        return torch.stack([next(v for name, v in vectors.items() if name in sentence) for sentence in sentences])

    texts = torch.nn.functional.normalize(encode([f"a photo of a {name}." for name in SORTED]), dim=1)

    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Sequential(*small_network()[:-1], torch.nn.Linear(32 * 49, 32))

        def forward(self, images: Any) -> Any:
            return 20 * torch.nn.functional.normalize(self.encoder(images), dim=1) @ texts.T

    pair = material.trained(Pair())
    right = material.right(material.own_scores(pair), SORTED)
    classifier = sb.zero_shot_classifier(pair.encoder, encode, SORTED, preprocessing=OWN, scale=20.0, name="pair")
    return Row("models.md", "any pair of encoders", classifier, material.photos, right, {"labels": "folders"})


def open_clip_row(material: Material) -> Row:
    """No registry carries weights of CLIP: random ones, whose accuracy is chance, and must be the same chance."""
    torch: Any = importlib.import_module("torch")
    import_torchvision("open_clip")
    import open_clip

    torch.manual_seed(0)
    name = "ViT-S-32-alt"
    network, _, transform = open_clip.create_model_and_transforms(name)
    network.eval()
    torch.save(network.state_dict(), material.folder / "clip.pt")
    with torch.inference_mode():
        texts = network.encode_text(open_clip.get_tokenizer(name)([f"a photo of a {word}." for word in SORTED]))
        images = torch.stack([transform(Image.open(path)) for path in material.paths])
        features = torch.cat([network.encode_image(batch) for batch in images.split(32)])
        scores = torch.nn.functional.normalize(features, dim=1) @ torch.nn.functional.normalize(texts, dim=1).T
    spec = f"open_clip:{name}@{material.folder / 'clip.pt'}"
    right = material.right(scores.numpy(), SORTED)
    return Row("models.md", "open_clip, random weights", spec, material.photos, right, {"labels": "folders"})


def sklearn_row(material: Material) -> Row:
    joblib = importlib.import_module("joblib")
    from sklearn.linear_model import LogisticRegression

    flat = material.training_pixels[:600].reshape(600, -1).astype(np.float64)
    names = [SORTED[target] for target in material.training_targets[:600]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge, which does not matter here
        estimator = LogisticRegression(max_iter=30).fit(flat, names)
    joblib.dump(estimator, material.folder / "model.joblib")
    right = sum(estimator.predict(material.pixels.reshape(len(material.pixels), -1)) == np.array(material.names))
    options = {"trust": True, "labels": "folders", "preprocessing": GEOMETRY}
    spec = str(material.folder / "model.joblib")
    return Row("models.md", "scikit-learn estimator", spec, material.photos, int(right), options)


def data_rows(material: Material) -> Iterator[Row]:
    """The same images in every form that datasets come in, all classified by the ResNet-8 in ONNX."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    right = material.right(material.resnet8_scores(), CLASSES)
    folder = material.folder

    def row(title: str, data: object, **more: Any) -> Row:
        options = {"labels": str(material.classes), "preprocessing": RESNET8, **more}
        return Row("datasets.md", title, str(material.onnx), data, right, options)

    yield row("a folder per class", str(material.photos))
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for path in material.paths:
            archive.write(path, path.relative_to(material.photos))
    yield row("the same, zipped", str(folder / "photos.zip"))
    relative = [path.relative_to(folder).as_posix() for path in material.paths]
    with (folder / "val.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("path", "label"), *zip(relative, material.names, strict=True)])
    yield row("a table of paths and labels", str(folder / "val.csv"))
    lines = [json.dumps({"path": path, "label": name}) for path, name in zip(relative, material.names, strict=True)]
    (folder / "val.jsonl").write_text("\n".join(lines) + "\n")
    yield row("the same, JSON lines", str(folder / "val.jsonl"))
    numbers = np.array([CLASSES.index(name) for name in material.names])
    np.savez(folder / "val.npz", images=material.pixels, labels=numbers)
    yield row("arrays, .npz", str(folder / "val.npz"))
    (folder / "arrays").mkdir()
    np.save(folder / "arrays" / "images.npy", material.pixels)
    np.save(folder / "arrays" / "labels.npy", numbers)
    yield row("arrays, .npy", str(folder / "arrays"))
    shards(material, numbers)
    yield row("tar shards", str(folder / "shard-{000..002}.tar"))
    encoded = [{"bytes": path.read_bytes(), "path": path.name} for path in material.paths]
    pq.write_table(pa.table({"image": encoded, "label": numbers}), folder / "val.parquet")
    yield row("Parquet file", str(folder / "val.parquet"))
    yield row("arrays in memory", from_arrays(material.pixels, numbers, space=label_space("cifar-10"), name="memory"))
    torchvision = import_torchvision()
    yield row("a dataset of torchvision", sb.from_torch_dataset(torchvision.datasets.ImageFolder(material.photos)))
    with files_by_url(folder) as address:
        yield row("a file by URL", f"{address}/val.parquet")


def datasets_row(material: Material) -> Row:
    import datasets

    folder = material.folder / "saved"
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    columns = {"image": [str(path) for path in material.paths], "label": material.names}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder)
    right = material.right(material.resnet8_scores(), CLASSES)
    options = {"labels": str(material.classes), "preprocessing": RESNET8}
    return Row("datasets.md", "what save_to_disk wrote", str(material.onnx), str(folder), right, options)


def shards(material: Material, numbers: NDArray[np.int64]) -> None:
    import tarfile

    for shard in range(3):
        with tarfile.open(material.folder / f"shard-{shard:03d}.tar", "w") as archive:
            for index in range(shard, len(material.paths), 3):
                for suffix, content in (
                    ("png", material.paths[index].read_bytes()),
                    ("cls", str(numbers[index]).encode()),
                ):
                    member = tarfile.TarInfo(f"{index:05d}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


@contextmanager
def served(material: Material) -> Iterator[tuple[str, str]]:
    """Two servers on loopback: the Open Inference Protocol, and chat completions, both with the ResNet-8."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(material.onnx), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tensors = {"inputs": [("images", [-1, 3, 32, 32])], "outputs": [("scores", [-1, 10])]}
            described = {}
            for kind, entries in tensors.items():
                described[kind] = [{"name": n, "datatype": "FP32", "shape": shape} for n, shape in entries]
            self.send({"name": "resnet8", **described})

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/infer"):
                entry = content["inputs"][0]
                batch = np.array(entry["data"], np.float32).reshape(entry["shape"])
                scores = session.run(None, {name: batch})[0]
                output = {"name": "scores", "datatype": "FP32", "shape": list(scores.shape)}
                self.send({"outputs": [{**output, "data": scores.ravel().tolist()}]})
                return
            url = content["messages"][0]["content"][1]["image_url"]["url"]
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))), np.float32)
            scores = session.run(None, {name: ((pixels.transpose(2, 0, 1) - 128) / 128)[None]})[0]
            self.send({"model": "resnet8", "choices": [{"message": {"content": CLASSES[int(scores.argmax())]}}]})

        def send(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with loopback(Handler) as address:
        yield address, address


@contextmanager
def files_by_url(folder: Path) -> Iterator[str]:
    from functools import partial
    from http.server import SimpleHTTPRequestHandler

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    with loopback(partial(Quiet, directory=str(folder))) as address:
        yield address


@contextmanager
def loopback(handler: Any) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Outcome:
    row: Row
    counted: int
    images: int


def run_row(row: Row, workspace: Path) -> Outcome:
    """The number of right images by an evaluation of the row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = sb.evaluate(row.model, data=row.data, workspace=workspace, progress=False, **row.options)
    predictions = run.predictions()
    return Outcome(row, int(predictions.correct.sum()), int(predictions.valid.sum()))


SINGLE_ROWS: tuple[Callable[[Material], Row], ...] = (
    openvino_row,
    litert_row,
    keras_row,
    executorch_row,
    zero_shot_row,
    open_clip_row,
    sklearn_row,
    datasets_row,
)
SEVERAL_ROWS: tuple[Callable[[Material], Iterator[Row]], ...] = (resnet8_rows, torch_rows, zoo_rows, data_rows)


def all_rows(material: Material) -> Iterator[Row | str]:
    """The rows; the name of a library where it is not installed."""
    for several in SEVERAL_ROWS:
        yield from several(material)
    for single in SINGLE_ROWS:
        try:
            yield single(material)
        except ModuleNotFoundError as error:
            yield f"{single.__name__.removesuffix('_row')} ({error.name} is not installed)"


def write(outcomes: Sequence[Outcome], page: str) -> None:
    """Replace the table between the two marks of a page."""
    path = PAGES / page
    lines = []
    for outcome in outcomes:
        if outcome.row.page == page:
            lines.append([outcome.row.title, f"{outcome.counted} of {outcome.images}", f"{outcome.row.right}"])
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = table(["row", "right, by shiftbench", "right, counted without it"], lines)
    path.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        material = Material(Path(name), options.images)
        for number, row in enumerate(all_rows(material)):
            if isinstance(row, str):
                missing.append(row)
                continue
            outcome = run_row(row, Path(name) / f"w{number}")
            verdict = "same" if outcome.counted == row.right else "DIFFERENT"
            print(f"{verdict}  {row.title}: {outcome.counted} of {outcome.images}, counted {row.right}", flush=True)
            outcomes.append(outcome)
    print("not run:", "; ".join(missing) or "none")
    if options.write:
        for page in ("models.md", "datasets.md"):
            write(outcomes, page)
    if any(outcome.counted != outcome.row.right for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
