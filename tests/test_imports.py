"""What is loaded when: start-up time is part of the interface, and the engine stands alone."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

import convgrad
from arrays_on_disk import save
from assertions import BFLOAT16
from commandline import run

ENGINE = Path(convgrad.__file__).parent
RUN_AND_LIST = """
import sys
from convgrad_cli.main import main
try:
    main(sys.argv[2:])
finally:
    with open(sys.argv[1], "w") as file:
        file.write("\\n".join(sys.modules))
"""


def packages(modules: str) -> set[str]:
    """Top-level packages that are not Python's own."""
    return {name.partition(".")[0] for name in modules.split()} - sys.stdlib_module_names


def loaded_by(code: str) -> set[str]:
    """Packages that `code` loads beyond those that a bare interpreter does."""
    report = "\nimport sys; print(*sys.modules)"
    outputs = [
        subprocess.run([sys.executable, "-c", text + report], capture_output=True, text=True, check=True)
        for text in ("", code)
    ]
    assert outputs[1].stderr == ""
    return packages(outputs[1].stdout) - packages(outputs[0].stdout)


def loaded_by_command(listing: Path, args: Sequence[object], status: int = 0) -> set[str]:
    """Packages loaded by the time the command has ended."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_LIST, str(listing), *map(str, args)], capture_output=True, check=False
    )
    assert done.returncode == status, done.stderr
    return packages(listing.read_text())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    x, w = np.ones((1, 2, 2, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    return {
        "x": save(tmp_path / "x.npy", x),
        "w": save(tmp_path / "w.npy", w),
        "bfloat16 x": save(tmp_path / "bx.npy", x.astype(BFLOAT16)),
        "bfloat16 w": save(tmp_path / "bw.npy", w.astype(BFLOAT16)),
        "hdf5 x": f"{tmp_path}/x.h5::/x",
        "y": f"{tmp_path}/y.npy",
        "hdf5 y": f"{tmp_path}/y.h5::/y",
        "modules": f"{tmp_path}/modules",
    }


def test_the_library_is_numpy_and_nothing_else() -> None:
    assert loaded_by("import convgrad") == {"convgrad", "numpy"}


def test_a_library_call_loads_no_command_line() -> None:
    code = "import convgrad, numpy; one = numpy.ones((1, 1, 1, 1)); convgrad.conv2d_transpose(one, one)"
    assert loaded_by(code) <= {"convgrad", "numpy", "threadpoolctl"}


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.py")), ids=lambda p: str(p.relative_to(ENGINE)))
def test_no_engine_module_names_the_command_line(path: Path) -> None:
    named = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named.add((node.module or "").partition(".")[0])
    assert named - sys.stdlib_module_names <= {"convgrad", "numpy", "ml_dtypes", "threadpoolctl"}


def test_public_names() -> None:
    assert sorted(convgrad.__all__) == [
        "ArgumentError",
        "Axis",
        "Block",
        "ConvgradError",
        "DTypeError",
        "Plan",
        "ShapeError",
        "ShapeReport",
        "Tensor",
        "TensorSpec",
        "__version__",
        "conv2d_transpose",
        "depthwise_conv2d_backprop_filter",
        "execute",
        "plan_conv2d_transpose",
        "plan_depthwise_conv2d_backprop_filter",
    ]
    assert all(hasattr(convgrad, name) for name in convgrad.__all__)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["transpose", "--help"], 0),
        (["filter-grad", "-h"], 0),
        (["transpose", "--nonsense"], 2),
        (["transpose", "x.npy"], 2),
        (["transpose", "x.npy", "w.npy", "-s", "two", "-o", "y.npy"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_help_and_usage_errors_load_click_alone(tmp_path: Path, words: list[str], status: int) -> None:
    loaded = loaded_by_command(tmp_path / "modules", words, status)
    assert loaded & {"numpy", "convgrad", "rich", "h5py", "ml_dtypes", "threadpoolctl"} == set()


@pytest.mark.parametrize(
    ("words", "absent", "present"),
    [
        (("x", "w", "-o", "y"), {"h5py", "ml_dtypes"}, {"numpy", "rich"}),
        (("x", "w", "-o", "y", "-q"), {"h5py", "ml_dtypes", "rich"}, {"numpy"}),
        (("x", "w", "-o", "y", "--format", "json"), {"h5py", "ml_dtypes", "rich"}, {"numpy"}),
        (("x", "w", "-n"), {"h5py", "ml_dtypes"}, {"numpy", "rich"}),
        (("bfloat16 x", "bfloat16 w", "--as", "bfloat16", "-o", "y"), {"h5py"}, {"ml_dtypes"}),
        (("hdf5 x", "w", "-q", "-o", "y"), {"rich", "ml_dtypes"}, {"h5py"}),
        (("x", "w", "-q", "-o", "hdf5 y"), {"rich", "ml_dtypes"}, {"h5py"}),
    ],
    ids=["npy", "quiet", "json", "dry-run", "bfloat16", "hdf5-in", "hdf5-out"],
)
def test_a_job_loads_what_it_needs(
    files: dict[str, str], words: tuple[str, ...], absent: set[str], present: set[str]
) -> None:
    args = ["transpose", *(files.get(word, word) for word in words)]
    loaded = loaded_by_command(Path(files["modules"]), args)
    assert loaded & absent == set()
    assert loaded >= present


def test_version() -> None:
    version = importlib.metadata.version("convgrad")
    assert convgrad.__version__ == version
    assert version in run("--version").succeeded().stdout.split()


def test_the_installed_script_is_the_module() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="convgrad")
    assert script.value == "convgrad_cli.main:main"
    done = subprocess.run(
        [Path(sys.executable).with_name("convgrad"), "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout == run("--help").stdout
