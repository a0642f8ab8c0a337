from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad_cli.address import Address, parse_address
from convgrad_cli.errors import AddressError

# Names that a URL parser, a shell or a printf would mangle.
NAMES = ["a b", "a+b", "x#1", "a&b=c", "%20", "a[0]", "ünï", "-", "a:b", "{}", "*"]


@pytest.mark.parametrize(
    ("text", "file", "dataset"),
    [
        ("x.npy", "x.npy", None),
        ("x.h5", "x.h5", None),
        ("-", "-", None),
        ("x.h5::/a", "x.h5", "/a"),
        ("x.h5::a", "x.h5", "a"),
        ("x.h5::/a::b", "x.h5", "/a::b"),
        ("x.h5:::a", "x.h5", ":a"),
        ("x.h5:/a", "x.h5:/a", None),
        ("-::/a", "-", "/a"),
        ("dir/../x.h5::/a/", "dir/../x.h5", "/a/"),
        *((f"{name}.h5::/{name}/x", f"{name}.h5", f"/{name}/x") for name in NAMES),
    ],
)
def test_split_at_the_first_double_colon_and_nothing_decoded(
    text: str, file: str, dataset: str | None
) -> None:
    address = parse_address(text)
    assert address == Address(file, dataset)
    assert str(address) == text


@given(st.text(alphabet="ab:/. %", min_size=1))
def test_every_accepted_text_comes_back(text: str) -> None:
    try:
        address = parse_address(text)
    except AddressError:
        return
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "::", "::/a", "x.h5::", "x.h5::/", "x.h5:://"])
def test_refused(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert caught.value.hint


def test_a_string_that_names_an_existing_file_is_that_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.h5::").mkdir()
    (tmp_path / "x.h5::" / "a").touch()
    (tmp_path / "odd::name.npy").touch()
    assert parse_address("x.h5::/a") == Address("x.h5::/a", None)
    assert parse_address("odd::name.npy") == Address("odd::name.npy", None)
    assert parse_address("odd::other.npy") == Address("odd", "other.npy")


def test_a_name_too_long_for_the_file_system_is_no_error_yet() -> None:
    assert parse_address("a" * 5000) == Address("a" * 5000)


@pytest.mark.parametrize(("text", "expected"), [("-", True), ("-::/a", False), ("./-", False), ("x", False)])
def test_is_pipe(text: str, expected: bool) -> None:
    assert parse_address(text).is_pipe is expected


def test_import_is_light() -> None:
    code = (
        "import sys, convgrad_cli.address; sys.exit(bool({'h5py', 'ml_dtypes', 'rich'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
