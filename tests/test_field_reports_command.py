"""Field reports, by number: what the command line shows, refuses, writes and leaves alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import cuts
import reference
from arrays_on_disk import load, save
from assertions import assert_matches, dtype_of
from commandline import call, run


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype_of(dtype))


def operands(folder: Path, x: tuple[int, ...], other: tuple[int, ...], dtype: str = "float32") -> list[str]:
    """Two .npy of random numbers: their addresses."""
    return [
        save(folder / "x.npy", random(*x, dtype=dtype)),
        save(folder / "other.npy", random(*other, seed=1, dtype=dtype)),
    ]


def report(*args: object) -> dict[str, Any]:
    """The JSON object of a job or a dry run."""
    return json.loads(call(*args, "--format", "json").succeeded().stdout)


def by_axis(found: dict[str, Any], name: str) -> list[Any]:
    """One column of the geometry: rows, then columns."""
    return [axis[name] for axis in found["geometry"]]


# What is shown


#: Pads that SAME leads to: the odd one after.
PADS = [
    pytest.param((1, 3, 3, 1), (3, 3, 1, 1), "6,6", 2, [0, 0], [1, 1], id="003"),
    pytest.param((1, 4, 4, 1), (2, 2, 1, 1), "4,4", 1, [0, 0], [1, 1], id="008"),
    pytest.param((1, 7, 7, 1), (3, 3, 1, 1), "14,14", 2, [0, 0], [1, 1], id="009-14"),
    pytest.param((1, 7, 7, 1), (3, 3, 1, 1), "13,13", 2, [1, 1], [1, 1], id="009-13"),
    pytest.param((1, 14, 28, 1), (3, 3, 1, 1), "28,56", 2, [0, 0], [1, 1], id="010"),
    pytest.param((2, 6, 4, 3), (3, 3, 2, 3), "2,12,8,2", 2, [0, 0], [1, 1], id="018"),
    pytest.param((1, 5, 5, 1), (4, 4, 1, 1), "5,5", 1, [1, 1], [2, 2], id="026"),
    pytest.param((1, 2, 3, 1), (3, 1, 1, 1), "4,6", 2, [0, 0], [1, 0], id="032"),
    pytest.param((1, 2, 2, 1), (1, 1, 1, 1), "4,3", 2, [0, 0], [0, 0], id="053"),
]


@pytest.mark.parametrize(("x", "w", "size", "stride", "before", "after"), PADS)
def test_pads_are_shown(
    tmp_path: Path, x: Any, w: Any, size: str, stride: int, before: list[int], after: list[int]
) -> None:
    words = ["transpose", *operands(tmp_path, x, w), "-s", stride, "--output-shape", size, "--dry-run"]
    found = report(*words)
    assert by_axis(found, "pad_before") == before
    assert by_axis(found, "pad_after") == after
    table = call(*words).succeeded().stdout
    assert "before" in table
    assert "after" in table


def test_report_009_018_legal_sizes_are_shown(tmp_path: Path) -> None:
    found = report("transpose", *operands(tmp_path, (1, 7, 7, 2), (3, 3, 2, 2)), "-s", 2, "--dry-run")
    assert found["operation"] == "conv2d_transpose"
    assert found["dry_run"] is True
    assert by_axis(found, "legal_wide") == [[13, 14]] * 2
    assert by_axis(found, "wide") == [14, 14]
    assert by_axis(found, "narrow") == [7, 7]
    assert [tensor["role"] for tensor in found["tensors"]] == ["input", "filters", "output"]
    assert found["tensors"][2]["shape"] == [1, 14, 14, 2]
    assert found["tensors"][2]["dtype"] == "float32"
    assert found["tensors"][2]["bytes"] == 14 * 14 * 2 * 4


def test_report_023_effective_kernel_is_shown(tmp_path: Path) -> None:
    found = report("transpose", *operands(tmp_path, (1, 5, 6, 1), (3, 3, 2, 1)), "-d", 2, "--dry-run")
    assert by_axis(found, "effective_kernel") == [5, 5]
    assert by_axis(found, "pad_before") == by_axis(found, "pad_after") == [2, 2]


def test_report_016_what_would_work_is_said(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 7, 7, 1), (3, 3, 1, 1))
    done = call("transpose", *names, "--output-shape", "16,16", "-o", tmp_path / "y.npy")
    done.refused(2, "output_shape", "16", "7")
    done = call("transpose", *names, "-s", 2, "--output-shape", "16,16", "-o", tmp_path / "y.npy")
    done.refused(2, "output_shape", "16", "13", "14")


def test_report_031_swapped_filter_channels_are_named(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 4, 4, 128), (2, 2, 128, 64))
    done = call("transpose", *names, "-s", 2, "-o", tmp_path / "y.npy")
    done.refused(2, "filters", "128", "64")
    assert re.search("swapped|transposed", done.hint)


def test_report_048_the_dilation_that_fits_is_named(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 1, 36, 1), (1, 1, 32, 1))
    done = call("filter-grad", *names, "--filter-sizes", "1,2", "-p", "VALID", "-o", tmp_path / "y.npy")
    done.refused(2, "out_backprop", "32", "35")
    assert re.search(r"dilations? .*4", done.hint)


def test_report_029_the_meaning_of_padding_is_in_the_help() -> None:
    for verb in ("transpose", "filter-grad"):
        assert "forward convolution" in " ".join(call(verb, "--help").succeeded().stdout.split())


def test_report_030_that_filters_are_not_flipped_is_in_the_help() -> None:
    assert "not flipped" in " ".join(call("transpose", "--help").succeeded().stdout.split())


def test_report_124_031_layouts_are_in_the_help() -> None:
    text = call("transpose", "--help").succeeded().stdout
    assert "(kh,kw,Cout,Cin)" in text
    assert "2, 3, 1, 0" in text
    text = call("filter-grad", "--help").succeeded().stdout
    assert "(C*M,1,kh,kw)" in text
    assert "reshape(C, M, kh, kw)" in text
    assert "2, 3, 0, 1" in text


def test_report_124_the_permutations_are_right() -> None:
    """PyTorch's y[o, i*s + u] += x[c, i] * w[c, o, u] and its grouped convolution, in loops of their own."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 3, 3)), rng.standard_normal((2, 4, 2, 2))
    y = np.zeros((1, 4, 6, 6))
    for c, o, i, j, u, v in np.ndindex(2, 4, 3, 3, 2, 2):
        y[0, o, 2 * i + u, 2 * j + v] += x[0, c, i, j] * w[c, o, u, v]
    ours = reference.transpose(x, w.transpose(2, 3, 1, 0), None, 2, "VALID", "NCHW")
    assert np.allclose(ours.values, y, rtol=1e-13)
    w = rng.standard_normal((6, 1, 2, 2))
    y = np.zeros((1, 6, 2, 2))
    for channel, i, j, u, v in np.ndindex(6, 2, 2, 2, 2):
        y[0, channel, i, j] += x[0, channel // 3, i + u, j + v] * w[channel, 0, u, v]
    ours = reference.depthwise_conv2d(x, w.reshape(2, 3, 2, 2).transpose(2, 3, 0, 1), 1, "VALID", "NCHW")
    assert np.allclose(ours, y, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_report_129_sums_of_the_result(tmp_path: Path, dtype: str) -> None:
    names = operands(tmp_path, (1, 6, 5, 8), (2, 2, 4, 8), dtype)
    flags = ["--as", "bfloat16"] if dtype == "bfloat16" else []
    words = ["transpose", *names, "-s", 2, "-o", tmp_path / "y.npy", "--overwrite", *flags]
    found = report(*words)
    assert found["dry_run"] is False
    result = load(tmp_path / "y.npy").astype(np.float64)
    assert found["result"]["sum"] == pytest.approx(result.sum(), rel=1e-9)
    assert found["result"]["abs_sum"] == pytest.approx(np.abs(result).sum(), rel=1e-9)
    shown = call(*words).succeeded().stdout
    numbers = [float(number) for number in re.findall(r"(?:^|\bsum |abs_sum )(-?[\d.]+(?:e[+-]\d+)?)", shown)]
    assert any(number == pytest.approx(result.sum(), rel=1e-5) for number in numbers)
    assert any(number == pytest.approx(np.abs(result).sum(), rel=1e-5) for number in numbers)


def test_report_071_26_gigabytes_are_planned_not_wrapped(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 1, 46889, 2), (1, 1, 1, 1))
    words = ["transpose", *names, "-s", "46889,4", "-p", "0,0,1,1", "--data-format", "NCHW", "--dry-run"]
    assert report(*words)["tensors"][2]["bytes"] == 26_382_377_196
    assert report(*words)["tensors"][2]["shape"] == [1, 1, 2_198_531_433, 3]
    assert "26,382,377,196" in call(*words).succeeded().stdout


@pytest.mark.parametrize(
    ("x", "w", "flags"),
    [
        ((1, 1, 2, 2), (2, 2, 1, 1), ["-s", 2, "-p", "2,2,2,2"]),
        ((12, 8, 2, 2), (1, 1, 4, 8), ["-p", "1,1,1,1"]),
    ],
    ids=["039-A", "039-B"],
)
def test_report_039_empty_everywhere_alike(tmp_path: Path, x: Any, w: Any, flags: list[Any]) -> None:
    words = ["transpose", *operands(tmp_path, x, w), *flags, "--data-format", "NCHW"]
    planned = report(*words, "--dry-run")
    done = report(*words, "-o", tmp_path / "y.npy")
    assert planned["tensors"][2]["shape"] == done["tensors"][2]["shape"] == [x[0], w[2], 0, 0]
    assert np.load(tmp_path / "y.npy").shape == (x[0], w[2], 0, 0)
    assert done["result"]["sum"] == 0


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_report_040_126_127_batch_0_is_written(tmp_path: Path, suffix: str) -> None:
    where = "y.npy" if suffix == "npy" else "y.h5::/y"
    names = operands(tmp_path, (0, 7, 7, 1), (5, 5, 16, 1))
    call("transpose", *names, "-s", 2, "-o", f"{tmp_path}/{where}").succeeded()
    names = operands(tmp_path, (0, 28, 28, 1), (0, 28, 28, 32))
    grad = "g.npy" if suffix == "npy" else "g.h5::/g"
    call("filter-grad", *names, "--filter-sizes", "5,5,1,32", "-o", f"{tmp_path}/{grad}").succeeded()
    if suffix == "npy":
        empty, zeros = np.load(tmp_path / "y.npy"), np.load(tmp_path / "g.npy")
    else:
        with h5py.File(tmp_path / "y.h5") as file, h5py.File(tmp_path / "g.h5") as other:
            empty, zeros = file["y"][:], other["g"][:]
    assert empty.shape == (0, 14, 14, 16)
    assert zeros.shape == (5, 5, 1, 32)
    assert (zeros == 0).all()


def test_report_012_078_large_jobs_are_planned_at_once(tmp_path: Path) -> None:
    """Headers only: the files are sparse."""
    for name, shape in [("x.npy", (256, 256, 256, 32)), ("w.npy", (64, 64, 32, 32))]:
        with (tmp_path / name).open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": shape}
            )
            file.truncate(file.tell() + 4 * int(np.prod(shape)))
    found = report("transpose", tmp_path / "x.npy", tmp_path / "w.npy", "--dry-run")
    assert found["tensors"][2]["shape"] == [256, 256, 256, 32]
    assert found["tensors"][2]["bytes"] == 4 * 256**3 * 32


# Words


@pytest.mark.parametrize("strides", ["2,1", "2x1", "1,2,1,1", "1x2x1x1"])
def test_report_065_forms_of_strides(tmp_path: Path, strides: str) -> None:
    names = operands(tmp_path, (1, 3, 4, 1), (2, 2, 1, 1))
    assert report("transpose", *names, "-s", strides, "--dry-run")["tensors"][2]["shape"] == [1, 6, 4, 1]


@pytest.mark.parametrize(
    ("strides", "words"),
    [
        pytest.param("", (), id="063"),
        pytest.param("1,1,1", ("strides", "3"), id="065"),
        pytest.param("1,0,1,1", ("strides", "0"), id="066"),
        pytest.param("0", ("strides", "0"), id="067"),
        pytest.param("-1", ("strides", "-1"), id="068"),
        pytest.param("2.5", ("2.5",), id="068-fraction"),
    ],
)
def test_refused_strides(tmp_path: Path, strides: str, words: tuple[str, ...]) -> None:
    names = operands(tmp_path, (1, 3, 4, 1), (2, 2, 1, 1))
    done = call("transpose", *names, f"--strides={strides}", "-o", tmp_path / "y.npy")
    done.refused(2, *words)
    assert not (tmp_path / "y.npy").exists()


def test_report_006_output_padding_does_not_exist(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 2, 3, 3), (3, 3, 1, 2))
    done = call("transpose", *names, "--output-padding", 1, "-o", tmp_path / "y.npy")
    done.refused(2, "--output-padding")


def test_report_132_mixed_dtypes(tmp_path: Path) -> None:
    x, w = random(1, 4, 4, 2), random(3, 3, 2, 2, seed=1, dtype="float16")
    names = [save(tmp_path / "x.npy", x), save(tmp_path / "w.npy", w)]
    target = tmp_path / "y.npy"
    call("transpose", *names, "-o", target).refused(2, "float32", "float16", "cast")
    assert not target.exists()
    call("transpose", *names, "-o", target, "--cast", "float32").succeeded()
    assert_matches(np.load(target), *reference.transpose(x, w), np.float32)


def test_report_086_087_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 128, 16, 16), (4, 4, 24, 128))
    flags = ["-s", 2, "--data-format", "NCHW"]
    for threads in ("1", "2"):
        env = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        run("transpose", *names, *flags, "-o", tmp_path / f"{threads}.npy", env=env).succeeded()
    assert (tmp_path / "1.npy").read_bytes() == (tmp_path / "2.npy").read_bytes()


def test_report_002_130_the_requested_size(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 4, 5, 1), (3, 3, 1, 1))
    words = ["transpose", *names, "-s", 2, "-p", "1,3,2,2"]
    x, w = np.load(names[0]), np.load(names[1])
    padding = [[0, 0], [1, 3], [2, 2], [0, 0]]
    for size in ("5,7", "6,8"):
        target = tmp_path / f"{size}.npy"
        call(*words, "--output-shape", size, "-o", target).succeeded()
        wanted = tuple(map(int, size.split(",")))
        expected = reference.transpose(x, w, wanted, strides=2, padding=padding)
        assert_matches(np.load(target), *expected, np.float32)
    call(*words, "--output-shape", "7,8", "-o", tmp_path / "no.npy").refused(2, "output_shape", "7", "5", "6")


# Output


def test_report_116_an_existing_output_is_refused_before_computing(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 3, 4, 1), (2, 2, 1, 1))
    target = tmp_path / "y.npy"
    target.write_bytes(b"precious")
    call("transpose", *names, "-o", target).refused(2, str(target), "exists")
    assert target.read_bytes() == b"precious"
    call("transpose", *names, "-o", target, "--overwrite").succeeded()
    assert np.load(target).shape == (1, 3, 4, 1)


def test_report_116_an_existing_dataset(tmp_path: Path) -> None:
    names = operands(tmp_path, (1, 3, 4, 1), (2, 2, 1, 1))
    path = tmp_path / "out.h5"
    with h5py.File(path, "w") as file:
        file["grad"], file["deep/other"] = [1.0], [2.0, 3.0]
        file["deep"].attrs["kept"] = "yes"
    before = path.read_bytes()
    words = ["transpose", *names, "-o", f"{path}::/grad"]
    for flags in ([], ["--append"]):
        call(*words, *flags).refused(2, str(path))
        assert path.read_bytes() == before
    call("transpose", *names, "-o", f"{path}::/new").refused(2, str(path))
    assert path.read_bytes() == before
    call("transpose", *names, "-o", f"{path}::/new", "--append").succeeded()
    call(*words, "--overwrite").succeeded()
    with h5py.File(path) as file:
        assert file["grad"].shape == file["new"].shape == (1, 3, 4, 1)
        assert file["deep/other"][:].tolist() == [2, 3]
        assert file["deep"].attrs["kept"] == "yes"


@pytest.mark.parametrize("name", ["grad", "grad.tmp", "grad.NPY", "a b+c#d%20.x", "grad.npy.gz"])
def test_report_117_exactly_the_given_name(tmp_path: Path, name: str) -> None:
    names = operands(tmp_path, (1, 3, 4, 1), (2, 2, 1, 1))
    folder = tmp_path / "out"
    folder.mkdir()
    call("transpose", *names, "-o", folder / name).succeeded()
    assert [path.name for path in folder.iterdir()] == [name]
    assert np.load(folder / name).shape == (1, 3, 4, 1)


@pytest.mark.parametrize("target", ["y.npy", "y.h5::/y"])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_report_118_a_failure_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, existing: bool
) -> None:
    """The last image cannot be read, after the first ones have been computed and written."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("x", (9, 3, 4, 1), "f4", chunks=(1, 3, 4, 1), compression="gzip")
        data[:] = 1
        data.id.write_direct_chunk((8, 0, 0, 0), b"not gzip at all")
    one = save(tmp_path / "one.npy", np.ones((1, 1, 1, 1), np.float32))
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 1)
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / target.split("::")[0]
    if existing and path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["y"] = [1.0]
    elif existing:
        path.write_bytes(b"precious")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    flags = ["--overwrite"] if existing else []
    with cuts.every_plan_cut(cuts.ONES):
        done = call("transpose", f"{tmp_path}/x.h5::/x", one, "-o", f"{folder}/{target}", *flags)
    done.refused(1, str(tmp_path / "x.h5"))
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


# Batches


def manifest(folder: Path, pattern: str) -> None:
    """A batch of transposed convolutions with one filter, in `folder`."""
    save(folder / "w.npy", np.ones((1, 1, 1, 1), np.float32))
    (folder / "jobs.toml").write_text(
        f'[[job]]\noperation = "transpose"\ninput = "{pattern}"\n'
        'filters = "w.npy"\noutput = "y_{stem}.npy"\n'
    )


def test_report_113_a_truncated_file_does_not_stop_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sizes are in the reason, all other results are made, and the exit status is 1 at the end."""
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        with h5py.File(f"x{number:02}.h5", "w") as file:
            file["x"] = np.full((1, 4, 4, 1), number, np.float32)
    whole = Path("x07.h5").read_bytes()
    Path("x07.h5").write_bytes(whole[:-64])
    manifest(tmp_path, "x*.h5::/x")
    done = call("batch", "jobs.toml", "--format", "json")
    assert done.returncode == 1
    *jobs, last = map(json.loads, done.stdout.splitlines())
    failed = [job for job in jobs if job["status"] == "failed"]
    assert [job["operands"][0] for job in failed] == ["x07.h5::/x"]
    assert all(str(size) in failed[0]["error"]["message"] for size in (len(whole), len(whole) - 64))
    assert last["summary"]["done"] == 19
    for number in {*range(20)} - {7}:
        assert (load(f"y_x{number:02}.npy") == number).all()


def test_report_123_many_files_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left open by any of them, whether it succeeds or fails."""
    monkeypatch.chdir(tmp_path)
    for number in range(300):
        save(Path(f"x{number:03}.npy"), np.full((1, 2, 2, 1), number, np.float32))
    Path("x100.npy").write_bytes(b"\x93NUMPY")
    manifest(tmp_path, "x*.npy")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    assert call("batch", "jobs.toml", "-q").returncode == 1
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert len(list(Path().glob("y_*.npy"))) == 299
