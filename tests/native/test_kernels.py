"""Kernels in C: declarations and code agree, arguments are checked, and every compiled version gives the same bytes."""

from __future__ import annotations

import ast
import ctypes
import platform
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shiftbench.native import kernel
from shiftbench.native.build import FOLDER, Target, build, sources, zig_compiler
from shiftbench.native.loops import column_sums, fill_uniform, to_unit, weighted_sum

DIGEST = """
import hashlib, sys, numpy
from shiftbench import native
from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
libraries = dict(list(native.Target.here().libraries().items())[: int(sys.argv[1])])
native.Target.libraries = lambda target: libraries
image = numpy.random.default_rng(0).integers(0, 256, (40, 56, 3), numpy.uint8)
digest = hashlib.sha256()
for name in corruptions():
    digest.update(corrupt(image, name, severity=3, image_id="a").tobytes())
print(native._library()._name, digest.hexdigest())
"""


def test_every_version_gives_the_same_pixels() -> None:
    """The one for any processor, and those for newer ones as far as this processor can run them."""
    lines = []
    count_of_versions = len(Target.here().libraries())
    for count in range(1, count_of_versions + 1):
        done = subprocess.run([sys.executable, "-c", DIGEST, str(count)], capture_output=True, text=True, check=True)
        lines.append(done.stdout.split())
    assert len({name for name, _ in lines}) > 1 or count_of_versions == 1
    assert len({digest for _, digest in lines}) == 1


def expanded(text: str) -> str:
    """C code with the macros of the same file that take arguments replaced by what they stand for."""
    text = text.replace("\\\n", " ")
    for name, parameters, body in re.findall(r"^#define ([A-Z_]+)\(([^)]*)\)(.*)$", text, re.MULTILINE):

        def replaced(use: re.Match[str], parameters: str = parameters, body: str = body) -> str:
            values = dict(zip(re.split(r",\s*", parameters), re.split(r",\s*", use[1]), strict=True))
            return re.sub(r"\w+", lambda word: values.get(word[0], word[0]), body)

        text = re.sub(rf"(?<!#define )\b{name}\(([^()]*)\)", replaced, text)
    return re.sub(r"^#define .*$", "", text, flags=re.MULTILINE)


def types_in_c() -> dict[str, list[str]]:
    """The types of each kernel's arguments as its C code reads them."""
    macros = {"REAL": "float", "WHOLE": "int", "WORD": "uint64"}
    items = {"double": "float64[]", "float": "float32[]"}
    kernels = {}
    for path in sources():
        if path.suffix != ".c":
            continue
        for name, body in re.findall(r"\bKERNEL\((\w+)\)(.*?)(?=\bKERNEL\(|\Z)", expanded(path.read_text()), re.DOTALL):
            kernels[name] = [
                macros.get(macro) or items.get(item) or item.removesuffix("_t") + "[]"
                for macro, item in re.findall(r"\b(ARRAY|REAL|WHOLE|WORD)\((?:const )?(\w+)", body)
            ]
    return kernels


def declared_types() -> dict[str, list[str]]:
    """The types of each kernel's arguments as Python declares them, read from the sources of the whole package."""
    declarations = {}
    for path in FOLDER.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "kernel":
                    types = [ast.literal_eval(argument) for argument in decorator.args]
                    # C has one macro for both.
                    declarations[node.name.lstrip("_")] = ["int" if name == "bool" else name for name in types]
    return declarations


def test_declarations_agree_with_the_code_in_c() -> None:
    """C would read the bytes of an array of another type without noticing."""
    declared = declared_types()
    assert declared == types_in_c()
    assert len(declared) > 40


def test_declarations_are_checked() -> None:
    with pytest.raises(TypeError, match="uint9"):
        kernel("uint9[]")
    with pytest.raises(TypeError, match="2 types for 1 parameters"):

        @kernel("int", "int")
        def too_few_parameters(x: int) -> None:
            """It is written nowhere."""


@pytest.mark.parametrize("letter", ["l", "q", "n"])
def test_the_type_of_an_array_is_its_kind_and_size(letter: str) -> None:
    """An int64 has another letter on each operating system."""
    image = np.zeros((4, 5, 3), np.uint8)
    rows = np.arange(4, dtype=np.int64).view(letter)
    columns = np.arange(5, dtype=np.int64).view(letter)
    column_sums(image, rows, columns, np.empty((5, 5, 3), np.int32))
    with pytest.raises(TypeError, match=r"rows must be int64\[\]"):
        column_sums(image, rows.view(np.uint64), columns, np.empty((5, 5, 3), np.int32))
    with pytest.raises(TypeError, match=r"rows must be int64\[\]"):
        column_sums(image, rows.astype(np.int32), columns, np.empty((5, 5, 3), np.int32))


def test_arguments_are_checked() -> None:
    levels = np.arange(4, dtype=np.uint8)
    values = np.empty(4, np.float32)
    with pytest.raises(TypeError, match="to_unit: image must be"):
        to_unit(levels.astype(np.int8), values)
    with pytest.raises(ValueError, match="contiguous"):
        to_unit(levels, np.empty(8, np.float32)[::2])
    with pytest.raises(TypeError):
        to_unit(levels, 3)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        to_unit(levels)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        weighted_sum(levels, levels, 0, 0, "a", 1.0, levels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="image must be"):
        to_unit(np.zeros((1, 1, 1, 4), np.uint8), values)


def test_read_only_and_empty_arrays_are_fine() -> None:
    levels = np.array([0, 255], np.uint8)
    values = np.empty(2, np.float32)
    levels.flags.writeable = False
    to_unit(levels, values)
    assert values.tolist() == [0.0, 1.0]
    fill_uniform(np.empty(0), np.uint64(1), np.uint64(2), np.uint64(3))


def test_unknown_kernels_are_errors() -> None:
    @kernel("int")
    def no_such_kernel(x: int) -> None:
        """It is written nowhere."""

    with pytest.raises(AttributeError):
        no_such_kernel(1)


def test_threads_that_compile_at_once_leave_whole_libraries(tmp_path: Path) -> None:
    """With one name for the compiler's output, one thread put in its place what another was still writing."""
    target = Target(platform.system(), "any")
    [name] = target.libraries()
    with ThreadPoolExecutor(2) as pool:
        for libraries in pool.map(lambda _: build(tmp_path, "-O0", target=target), range(2)):
            assert libraries == [tmp_path / name]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert ctypes.CDLL(str(tmp_path / name)).processor_version() >= 0


def exported_names(file: bytes) -> list[str]:
    """The names that a library for 64-bit Windows exports, read from its headers as the PE format defines them."""
    assert file[:2] == b"MZ"
    [start] = struct.unpack_from("<I", file, 0x3C)
    signature, machine, section_count, options_size = struct.unpack_from("<4sHH12xH", file, start)
    assert (signature, machine) == (b"PE\0\0", 0x8664), "for x86-64"
    optional_header = start + 24
    [magic] = struct.unpack_from("<H", file, optional_header)
    assert magic == 0x20B, "with 64-bit addresses"
    [export_table] = struct.unpack_from("<I", file, optional_header + 112)
    sections = [
        struct.unpack_from("<III", file, optional_header + options_size + 40 * number + 12)
        for number in range(section_count)
    ]

    def position(address: int) -> int:
        """Where in the file an address of the loaded library is."""
        for start, size, offset in sections:
            if start <= address < start + size:
                return int(address - start + offset)
        raise AssertionError(f"no section holds the address {address}")

    name_count, _, name_table = struct.unpack_from("<III", file, position(export_table) + 24)
    addresses = struct.unpack_from(f"<{name_count}I", file, position(name_table))
    names = []
    for address in addresses:
        begin = position(address)
        names.append(file[begin : file.index(b"\0", begin)].decode())
    return names


def test_a_library_for_windows_exports_every_kernel(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="only ziglang compiles for other systems")
    target = Target("Windows", "any", "x86_64-windows-gnu")
    [library] = build(tmp_path, "-O0", target=target, command=zig_compiler())
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.dll"]
    exported = set(exported_names(library.read_bytes()))
    assert {*declared_types(), "call", "use_python", "processor_version"} <= exported


def test_libraries_have_the_names_of_their_system() -> None:
    assert list(Target("Windows", "AMD64").libraries()) == ["kernels.dll", "kernels-avx2.dll", "kernels-avx512.dll"]
    assert list(Target("Darwin", "arm64").libraries()) == ["kernels.so"]
    assert "-fPIC" not in Target("Windows", "AMD64").options()
