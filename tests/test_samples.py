"""samples/Makefile: convgrad under make, as its users run it, and the values that it must give."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import reference
from assertions import assert_matches

SAMPLES = Path(__file__).parent.parent / "samples"
SHARDS = ["00", "01", "02", "03"]
TARGETS = ["classifier.h5", "decoder.npy", "textdet.npy", *(f"shards/{name}.npy" for name in SHARDS)]


def make(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run make; what a surrounding make, as in `make test`, has set does not count."""
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "FLAGS")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    convgrad = Path(sys.executable).with_name("convgrad")
    return subprocess.run(
        ["make", f"CONVGRAD={convgrad}", f"PYTHON={sys.executable}", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def made(folder: Path) -> list[str]:
    """Files below build/, hidden ones too."""
    build = folder / "build"
    return sorted(str(path.relative_to(build)) for path in build.rglob("*") if path.is_file())


def _no_build(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "build"]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A fresh copy, nothing built."""
    return Path(shutil.copytree(SAMPLES, tmp_path / "samples", ignore=_no_build))


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "samples"
    shutil.copytree(SAMPLES, folder, ignore=_no_build)
    done = make(folder, "-j2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A copy with everything built: sources from second 1000, targets from second 2000."""
    folder = Path(shutil.copytree(built_once, tmp_path / "samples"))
    for path in folder.rglob("*"):
        seconds = 2000 if "build" in path.parts else 1000
        os.utime(path, (seconds, seconds))
    return folder


def stamps(folder: Path) -> dict[str, int]:
    return {name: (folder / "build" / name).stat().st_mtime_ns for name in made(folder)}


def digits(name: str) -> np.ndarray:
    with h5py.File(SAMPLES / "digits.h5") as file:
        return np.asarray(file[name])


def result(folder: Path, name: str) -> np.ndarray:
    return np.asarray(np.load(folder / "build" / name))


# What is built


def test_everything_is_built_and_nothing_else(built_once: Path) -> None:
    assert made(built_once) == sorted(TARGETS)


def test_the_classifier(built_once: Path) -> None:
    with h5py.File(built_once / "build/classifier.h5") as file:
        found = np.asarray(file["depthwise/filter_grad"])
        assert file["depthwise/filter_grad"].attrs["input"] == "digits.h5::/classifier/depthwise/input"
    layer = "classifier/depthwise"
    _, scale = reference.filter_grad(
        digits(f"{layer}/input"), (3, 3), digits(f"{layer}/out_backprop"), strides=2
    )
    assert_matches(found, digits(f"{layer}/expected_filter_grad").astype(np.float64), scale, np.float32)


def test_the_decoder(built_once: Path) -> None:
    layer = "autoencoder/decoder"
    _, scale = reference.transpose(digits(f"{layer}/input"), digits(f"{layer}/filters"), strides=2)
    expected = digits(f"{layer}/expected_output").astype(np.float64)
    assert_matches(result(built_once, "decoder.npy"), expected, scale, np.float32)


def test_the_text_detector(built_once: Path) -> None:
    x, w = np.load(SAMPLES / "textdet_features.npy"), np.load(SAMPLES / "textdet_filters.npy")
    keywords = {"strides": 2, "padding": "VALID", "data_format": "NCHW"}
    _, scale = reference.transpose(x, w, **keywords)
    expected = np.load(SAMPLES / "textdet_expected.npy").astype(np.float64)
    assert_matches(result(built_once, "textdet.npy"), expected, scale, np.float32)


def test_the_shards(built_once: Path) -> None:
    for name in SHARDS:
        x, g = (np.load(SAMPLES / "shards" / kind / f"{name}.npy") for kind in ("input", "out_backprop"))
        expected = reference.filter_grad(x, (3, 3), g, strides=2)
        assert_matches(result(built_once, f"shards/{name}.npy"), *expected, np.float32)


def test_the_shards_add_up_to_the_whole(built_once: Path) -> None:
    """The sum over images is the sum over shards of the sum over images."""
    total = sum(result(built_once, f"shards/{name}.npy").astype(np.float64) for name in SHARDS)
    expected = digits("classifier/depthwise/expected_filter_grad")
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


# When


def test_a_second_run_does_nothing(built: Path) -> None:
    before = stamps(built)
    done = make(built, "-j2")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout
    assert stamps(built) == before
    assert make(built, "--question").returncode == 0


@pytest.mark.parametrize("kind", ["input", "out_backprop"])
def test_a_changed_shard_rebuilds_that_one_only(built: Path, kind: str) -> None:
    os.utime(built / "shards" / kind / "01.npy", (3000, 3000))
    before = stamps(built)
    assert make(built, "-j2").returncode == 0
    after = stamps(built)
    assert [name for name in TARGETS if after[name] != before[name]] == ["shards/01.npy"]


def test_a_changed_file_rebuilds_what_it_feeds(built: Path) -> None:
    os.utime(built / "digits.h5", (3000, 3000))
    planned = make(built, "--dry-run").stdout
    assert re.findall(r"--output build/([^\s:]+)", planned) == ["classifier.h5", "decoder.npy"]


def test_a_new_shard_is_found(built: Path) -> None:
    for kind in ("input", "out_backprop"):
        shutil.copy(built / "shards" / kind / "00.npy", built / "shards" / kind / "04.npy")
    assert make(built).returncode == 0
    assert made(built) == sorted([*TARGETS, "shards/04.npy"])


def test_clean(built: Path) -> None:
    assert make(built, "clean").returncode == 0
    assert not (built / "build").exists()


# Failures


def spoil(folder: Path) -> None:
    """Shard 02 gets a gradient of another height."""
    path = folder / "shards/out_backprop/02.npy"
    np.save(path, np.load(path)[:, :3])


def test_a_shard_of_a_wrong_shape_stops_make(samples: Path) -> None:
    spoil(samples)
    done = make(samples, "-j2")
    assert done.returncode == 2
    assert "shards/02.npy" not in made(samples)
    assert set(made(samples)) < set(TARGETS)
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "out_backprop" in errors[0]
    assert "height" in errors[0]
    assert "3" in errors[0]


def test_the_others_are_built_if_make_keeps_going(samples: Path) -> None:
    spoil(samples)
    assert make(samples, "-j2", "--keep-going").returncode == 2
    assert made(samples) == sorted(set(TARGETS) - {"shards/02.npy"})


def test_a_failed_rebuild_leaves_the_old_target_older_than_its_source(built: Path) -> None:
    spoil(built)
    before = stamps(built)
    for _ in range(2):
        assert make(built).returncode == 2
        assert stamps(built) == before


@pytest.mark.parametrize("spoiled", ["missing", "cut"])
def test_a_file_that_cannot_be_read_stops_make(samples: Path, spoiled: str) -> None:
    path = samples / "textdet_filters.npy"
    if spoiled == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:1000])
    done = make(samples, "build/textdet.npy")
    assert done.returncode == 2
    assert "textdet_filters.npy" in done.stderr
    assert made(samples) == []


# The demonstration


def test_the_demonstration(samples: Path) -> None:
    done = make(samples, "demo")
    assert done.returncode == 0, done.stderr
    distances = re.findall(r"at most (\S+) from", done.stdout)
    assert len(distances) == 3
    # Values up to 0.09, 2.4 and 0.9, known to float32's precision.
    assert all(float(distance) < 1e-6 for distance in distances)
    assert done.stdout.count("legal wide") == 3
    assert "(kh=3, kw=3, C=8, M=2)" in done.stdout
    assert "(N=64, H=8, W=8, Cout=8)" in done.stdout
    assert "(N=1, Cout=24, H=128, W=192)" in done.stdout
