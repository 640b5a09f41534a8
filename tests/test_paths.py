"""Paths as strings mean what they mean to `pathlib`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.paths import above, inside, posix, shown

PATHS = st.lists(st.sampled_from(["a", "b.py", ".", "..", "", ".c", "d e"]), min_size=1, max_size=5).map("/".join)
FOLDERS = st.lists(st.sampled_from(["a", "b", ".c"]), max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(PATHS)
def test_posix_spells_as_pathlib_does(path: str) -> None:
    assert posix(path) == ("/" * path.startswith("/") + Path(path).as_posix().lstrip("/") or ".")


@given(FOLDERS)
def test_above_are_the_parents(folder: str) -> None:
    assert list(above(folder)) == [folder, *map(str, Path(folder).parents)]


@given(FOLDERS, FOLDERS)
def test_inside_is_relative_to(path: str, folder: str) -> None:
    below = Path(path).is_relative_to(folder)
    assert inside(path, folder) == (Path(path).relative_to(folder).as_posix() if below else None)


def test_a_folder_is_not_inside_one_whose_name_it_begins_with() -> None:
    assert inside("/repo-old/train.py", "/repo") is None


def test_shown_is_relative_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(os.path.join(tmp_path, "jobs", "train.py")) == "jobs/train.py"
    assert shown("/elsewhere/train.py") == "/elsewhere/train.py"
    assert shown("./train.py") == "./train.py"
