"""The door: dispatch, comments in files, links, and what must never raise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memlint.discover import discover
from memlint.extract import Project, extract

AXOLOTL = "base_model: org/a\nmicro_batch_size: 2\nsequence_len: 512\n"


def test_text_stands_in_for_a_file(tmp_path: Path) -> None:
    (run,) = extract(str(tmp_path / "x.yml"), text=AXOLOTL).runs
    assert run.value("model.id") == "org/a"


def test_comments_state_facts_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(AXOLOTL + "# memlint: set batch.sequence_length=4096\n# memlint: gpu=L4\n")
    (run,) = extract(str(tmp_path / "x.yml")).runs
    length = run.facts["batch.sequence_length"]
    assert (length.value, length.origin[0].span.line, run.value("hardware.gpu")) == (4096, 4, "L4")


def test_comments_of_the_launch_win_over_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "x.yml").write_text(AXOLOTL + "# memlint: gpu=L4\n# memlint: set model.id=org/x\n")
    (tmp_path / "run.sh").write_text("# memlint: gpu=T4\naxolotl train x.yml\n")
    (run,) = extract(str(tmp_path / "run.sh")).runs
    assert (run.value("hardware.gpu"), run.value("model.id")) == ("T4", "org/x")


def test_a_comment_inside_a_string_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(AXOLOTL + 'note: "# memlint: set model.id=org/x"\n')
    (run,) = extract(str(tmp_path / "x.yml")).runs
    assert run.value("model.id") == "org/a"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", b"\0\0"),
        ("a.sh", b"\xff\xfe\x00"),
        ("a.ipynb", b"{"),
        ("a.yaml", b"base_model: [\n"),
        ("a.json", b'{"zero_optimization": '),
        ("a.unknown", b"x"),
        ("a.sh", b"python train.py --bs \xe4\n"),
    ],
)
def test_what_cannot_be_read_is_an_error(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    found = extract(str(tmp_path / name))
    assert found.runs == ()
    assert len(found.errors) == 1 and found.errors[0].path.endswith(name)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    assert [e.message for e in extract(str(tmp_path / "no.py")).errors] == ["no such file"]
    assert [e.message for e in extract(str(tmp_path)).errors] == ["is a directory"]


def test_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(AXOLOTL)
    (tmp_path / "run.sh").write_bytes(b"BS=4\r\naxolotl train x.yml \\\r\n  --micro-batch-size $BS\r\n")
    (run,) = extract(str(tmp_path / "run.sh")).runs
    assert run.value("batch.micro_batch_size") == 4


def test_links(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "ds.json").write_text("{}")
    (root / "a" / "b" / "near.json").write_text("{}")
    (tmp_path / "outside.json").write_text("{}")
    project = Project.around(str(root / "a" / "b" / "run.sh"))
    here = str(root / "a" / "b" / "run.sh")
    assert project.root == str(root)
    assert project.resolve("ds.json", here) == str(root / "ds.json")
    assert project.resolve("near.json", here) == str(root / "a" / "b" / "near.json")
    assert project.resolve("../../ds.json", here) == str(root / "ds.json")
    assert project.resolve("b/near.json", str(root / "run.sh"), directory="a") == str(root / "a" / "b" / "near.json")
    for link in ("missing.json", "../../../outside.json", str(tmp_path / "outside.json"), "", "~/x", "/dev/zero", "a", "x\0"):
        assert project.resolve(link, here) is None


def test_discover(tmp_path: Path) -> None:
    for name, text in {
        "b/train.py": "import torch",
        "a/run.sh": "python x.py",
        "a/notes.md": "torch",
        "a/plain.py": "print(1)",
        "a/conf.yaml": "base_model: x",
        "a/other.yaml": "x: 1",
        ".hidden/train.py": "import torch",
        "node_modules/t.py": "import torch",
        "env2/pyvenv.cfg": "",
        "env2/lib/t.py": "import torch",
        "Makefile": "train:\n\tpython x.py\n",
        ".github/workflows/t.yml": "run: torchrun x.py",
        "n.ipynb": '{"cells": ["import torch"]}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    found = [Path(path).relative_to(tmp_path).as_posix() for path in discover(str(tmp_path))]
    assert found == [".github/workflows/t.yml", "Makefile", "a/conf.yaml", "a/run.sh", "b/train.py", "n.ipynb"]


def test_a_yaml_file_does_not_load_the_other_readers(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(AXOLOTL)
    program = (
        "import sys; from memlint.extract import extract\n"
        f"assert extract({str(tmp_path / 'x.yml')!r}).runs\n"
        "others = ('memlint.read.pyeval', 'memlint.read.shell', 'memlint.frameworks', 'memlint.launch', 'libcst', 'rich')\n"
        "print([name for name in sys.modules if name.startswith(others)])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
