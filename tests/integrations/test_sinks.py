"""Every sink and callback with its real library: the numbers are read back from its files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import shiftbench as sb
from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.integrations import Sink, find_sink, sinks
from tests.integrations.conftest import Network
from tests.raised import raises

CORRUPTED = "photos-c/top1"
BRIGHTNESS = torch.tensor([0.2, 0.8]).repeat(8)
TRAINING = TensorDataset(torch.rand(16, 3, 16, 16) * BRIGHTNESS.reshape(-1, 1, 1, 1), (BRIGHTNESS > 0.5).long())


class Kept:
    """A third party's sink."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.logged.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed = True


def logged(settings: dict[str, Any], network: Network, sink: str | Sink) -> dict[int, dict[str, float]]:
    """What a monitor of two epochs returned."""
    monitor = sb.Monitor(**settings, sinks=[sink])
    found = {}
    for epoch in (1, 2):
        torch.nn.init.normal_(network.layers[-1].weight)  # type: ignore[arg-type]
        found[epoch] = {f"{monitor.prefix}{key}": value for key, value in monitor(network, epoch).items()}
    monitor.close()
    return found


def test_a_sink_of_ones_own(settings: dict[str, Any], network: Network) -> None:
    sink = Kept()
    assert dict(sink.logged) == {} and dict(logged(settings, network, sink)) == dict(sink.logged)
    assert sink.closed
    assert {"tensorboard", "mlflow", "wandb"} <= set(sinks.names())
    with raises(UnknownNameError, name="tensorbord"):
        find_sink("tensorbord:runs")


def test_tensorboard(settings: dict[str, Any], network: Network, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = logged(settings, network, f"tensorboard:{tmp_path / 'runs'}")
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    for name in expected[1]:
        found = {event.step: event.value for event in events.Scalars(name)}
        assert found == pytest.approx({step: metrics[name] for step, metrics in expected.items()})


@pytest.mark.parametrize(
    "uri",
    [
        "file:{folder}/mlruns",  # quicker than the database that MLflow recommends, and as real
        pytest.param("sqlite:///{folder}/mlflow.db", marks=pytest.mark.slow),
    ],
)
def test_mlflow(
    uri: str, settings: dict[str, Any], network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    uri = uri.format(folder=tmp_path)
    expected = logged(settings, network, f"mlflow:{uri}")
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("shiftbench").experiment_id])
    assert run.info.status == "FINISHED"
    for name in expected[1]:
        found = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, name)}
        assert found == {step: metrics[name] for step, metrics in expected.items()}


def test_an_address_that_mlflow_does_not_know_is_an_error_that_names_it() -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(ShiftbenchError) as caught:
        find_sink("mlflow:nosuch://place")
    assert "nosuch://place" in str(caught.value) and "sqlalchemy" in str(caught.value)


#: In a process of its own: one that had loaded many native libraries before has crashed here.
_OWN_RUNS = """
import sys
from pathlib import Path

import mlflow
from torch.utils.tensorboard import SummaryWriter

from shiftbench.integrations import find_sink, sinks

folder = Path(sys.argv[1])
mlflow.set_tracking_uri(f"file:{folder / 'mlruns'}")
with mlflow.start_run() as run:
    sink = find_sink("mlflow")
    sink.log({"odd (name)/top1": 0.5}, 3)
    sink.close()
    assert mlflow.active_run().info.run_id == run.info.run_id
assert mlflow.get_run(run.info.run_id).data.metrics == {"odd _name_/top1": 0.5}
with SummaryWriter(str(folder / "runs")) as writer:
    sinks.get("tensorboard")(writer).close()
    writer.add_scalar("still/open", 1.0)
"""


def test_runs_and_writers_of_the_user_are_used_and_left_open(tmp_path: Path) -> None:
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}
    words = [sys.executable, "-c", _OWN_RUNS, str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wandb_offline(
    settings: dict[str, Any], network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    expected = logged(settings, network, "wandb:robustness")
    wandb.teardown()  # its service writes the file, and is waited for
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert wandb_history(file) == expected


def wandb_history(file: Path) -> dict[int, dict[str, float]]:
    import json

    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    found = {}
    store.open_for_scan(str(file))
    while data := store.scan_data():
        record = Record()
        record.ParseFromString(data)
        items = record.history.item
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
        if "shiftbench_step" in row:
            metrics = {name: value for name, value in row.items() if name.startswith("shiftbench/")}
            found[int(row["shiftbench_step"])] = metrics
    return found


def test_lightning(settings: dict[str, Any], tmp_path: Path) -> None:
    import lightning.pytorch as lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.network(images)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fitted(*callbacks: Any) -> Any:
        lightning.seed_everything(1, verbose=False)
        module = Module()
        logger = CSVLogger(tmp_path, name="logs", version=len(callbacks))
        trainer = lightning.Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=logger,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
            default_root_dir=tmp_path,
            callbacks=list(callbacks),
            enable_checkpointing=bool(callbacks),
        )
        trainer.fit(module, DataLoader(TRAINING, batch_size=8, shuffle=True))
        return module

    best = ModelCheckpoint(tmp_path, monitor=f"shiftbench/{CORRUPTED}", mode="max")
    monitor = sb.Monitor(**settings, every=2)
    watched = fitted(monitor.lightning_callback(), best)
    rows = [row for row in monitor.history().rows if row["metric"] == CORRUPTED]
    assert [row["epoch"] for row in rows] == [0, 2]
    text = (tmp_path / "logs" / "version_2" / "metrics.csv").read_text().splitlines()
    column = text[0].split(",").index(f"shiftbench/{CORRUPTED}")
    found = [float(line.split(",")[column]) for line in text[1:] if line.split(",")[column]]
    assert found == pytest.approx([row["value"] for row in rows])
    assert float(best.best_model_score) == pytest.approx(max(row["value"] for row in rows))
    for one, other in zip(fitted().parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_trainer_of_transformers(settings: dict[str, Any], tmp_path: Path) -> None:
    from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, set_seed

    examples = [{"pixel_values": image, "labels": int(label)} for image, label in map(TRAINING.__getitem__, range(16))]
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic")

    def trained(*callbacks: Any) -> Any:
        set_seed(1)
        arguments = TrainingArguments(
            str(tmp_path / "trainer"),
            num_train_epochs=2,
            per_device_train_batch_size=8,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            seed=1,
            logging_steps=1,
        )
        model = ResNetForImageClassification(config)  # type: ignore[no-untyped-call]
        trainer = Trainer(model=model, args=arguments, train_dataset=examples, callbacks=list(callbacks))
        trainer.train()
        return trainer

    monitor = sb.Monitor(**settings)
    watched = trained(monitor.trainer_callback())
    name = f"shiftbench/{CORRUPTED}"
    found = {round(entry["epoch"]): entry[name] for entry in watched.state.log_history if name in entry}
    assert found == {row["epoch"]: row["value"] for row in monitor.history().rows if row["metric"] == CORRUPTED}
    assert set(found) == {1, 2}
    for one, other in zip(trained().model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)
