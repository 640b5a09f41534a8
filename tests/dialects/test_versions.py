"""Which versions are in force, from the files that people keep them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.versions import NEWEST, Versions, pins_in, version_key, versions_for


@pytest.mark.parametrize(
    ("name", "text", "library", "version"),
    [
        ("requirements.txt", "torch\ntransformers==4.46.3  # pinned\n", "transformers", "4.46.3"),
        ("requirements.txt", "transformers[sentencepiece] == 4.46.3\n", "transformers", "4.46.3"),
        ("requirements-train.txt", "trl==0.9.6\n", "trl", "0.9.6"),
        ("uv.lock", '[[package]]\nname = "trl"\nversion = "0.22.1"\n', "trl", "0.22.1"),
        ("poetry.lock", '[[package]]\nname = "peft"\nversion = "0.10.0"\n', "peft", "0.10.0"),
        ("Pipfile.lock", '{"default": {"trl": {"hashes": [], "version": "==0.11.4"}}}', "trl", "0.11.4"),
        ("pyproject.toml", '[project]\ndependencies = ["transformers==4.57.6", "x"]\n', "transformers", "4.57.6"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = "4.41.2"\n', "transformers", "4.41.2"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = {version = "4.41.2"}\n', "transformers", "4.41.2"),
        ("environment.yml", "dependencies:\n  - pip:\n    - trl==0.15.2\n", "trl", "0.15.2"),
        ("environment.yml", "dependencies:\n  - transformers=4.46.3\n", "transformers", "4.46.3"),
        ("Dockerfile", "FROM x\nRUN pip install --no-cache-dir 'transformers==4.30.2' trl\n", "transformers", "4.30.2"),
    ],
)
def test_a_pin_is_found_where_people_write_it(tmp_path: Path, name: str, text: str, library: str, version: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    (tmp_path / "a").mkdir()
    assert versions_for(str(tmp_path / "a" / "train.py")).of(library).version == version


def test_a_lock_beats_a_requirement_and_the_nearest_directory_beats_both(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "uv.lock").write_text('name = "trl"\nversion = "0.22.1"\n')
    (tmp_path / "requirements.txt").write_text("trl==0.9.6\n")
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "requirements.txt").write_text("trl==0.7.11\n")
    assert versions_for(str(tmp_path / "train.py")).of("trl").version == "0.22.1"
    assert versions_for(str(tmp_path / "example" / "train.py")).of("trl") == ("0.7.11", "requirements.txt:1")


def test_included_requirements_are_read_and_a_cycle_ends(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("-r base.txt\n")
    (tmp_path / "base.txt").write_text("transformers==4.46.3\n-r requirements.txt\n")
    assert versions_for(str(tmp_path / "train.py")).of("transformers") == ("4.46.3", "base.txt:1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment.yml", "dependencies:\n  - python=3.11\n  - pip:\n    - -r train/libraries.txt\n"),
        ("Dockerfile", "FROM x\nCOPY train train\nRUN pip install --no-cache-dir -r train/libraries.txt && rm -rf x\n"),
        ("requirements.txt", "torch\n-r train/libraries.txt\n"),
    ],
)
def test_requirements_of_any_name_are_included_where_people_install_them(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "libraries.txt").write_text("trl==0.11.4\n")
    assert versions_for(str(tmp_path / "a.py")).of("trl") == ("0.11.4", "libraries.txt:1")


def test_what_a_person_states_wins_and_nothing_gives_the_newest_known(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("transformers==4.46.3\n")
    versions = versions_for(str(tmp_path / "train.py"), {"transformers": "4.30.2"})
    assert versions.of("transformers") == ("4.30.2", "configuration")
    assert versions.of("trl") == (NEWEST["trl"], "newest known")


@pytest.mark.parametrize(
    ("constraint", "below", "at_least"),
    [
        ("transformers<5", "5.0", "4.57"),
        ("transformers>=4.40,<4.50", "4.50", "4.49"),
        ("transformers~=4.46", "5.0", "4.57"),
        ("transformers==4.46.*", "4.47", "4.46"),
        ("transformers>=4.40", "99", NEWEST["transformers"]),
        ("torch<2.4", "2.4", "2.3"),
        ("trl>=99.1", "100", "99.1"),
    ],
)
def test_a_range_gives_the_newest_version_known_within_it(constraint: str, below: str, at_least: str) -> None:
    (pin,) = pins_in(constraint, "requirements.txt").values()
    assert version_key(at_least) <= version_key(pin.version) < version_key(below)


def test_names_that_only_contain_a_library_are_not_pins() -> None:
    assert pins_in("sentence-transformers==3.0\nmy-trl==1\nhttps://x/transformers==1\ntorchvision==0.2\n", "r") == {}


def test_version_comparison_is_numeric() -> None:
    from memlint.versions import Pin

    versions = Versions({"trl": Pin("0.9.6", "x")})
    assert not versions.at_least("trl", "0.22")
    for text in ("0.22", "0.22.0", "0.22.0.dev0", "1.0"):
        assert Versions({"trl": Pin(text, "x")}).at_least("trl", "0.22.0")
