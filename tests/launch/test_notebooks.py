"""Notebooks as Jupyter and IPython run them: cells, magics, shell lines, written files, metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_launchers import TRAIN

from memlint.extract import extract
from memlint.facts import Extraction
from memlint.read.notebook import read_notebook
from memlint.source import Kind, ReadError, Source

TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="bfloat16")\n'
    'args = TrainingArguments("o", per_device_train_batch_size=BS,\n                         bf16=True)\n'
    "Trainer(model=model, args=args).train()"
)


def notebook(*cells: str, metadata: dict[str, Any] | None = None, markdown: str = "") -> str:
    made: list[dict[str, Any]] = [{"cell_type": "markdown", "source": markdown, "metadata": {}}] if markdown else []
    made += [{"cell_type": "code", "source": cell.splitlines(keepends=True), "metadata": {}, "outputs": []} for cell in cells]
    return json.dumps({"cells": made, "metadata": metadata or {}, "nbformat": 4, "nbformat_minor": 5})


def read(text: str, folder: Path) -> Extraction:
    (folder / "n.ipynb").write_text(text)
    return extract(str(folder / "n.ipynb"))


def test_positions_are_cell_and_line(tmp_path: Path) -> None:
    found = read(notebook('MODEL = "org/a"\nBS = 4', TRAINER, markdown="# Title\nTrainer().train()"), tmp_path)
    (run,) = found.runs
    size, model = run.facts["batch.micro_batch_size"], run.facts["model.id"]
    assert (size.value, model.value) == (4, "org/a")
    place = size.origin[0].span
    assert (place.cell, place.line, place.column) == (2, 2, 6)  # cell 1 is the markdown
    assert run.facts["precision"].origin[0].span.line == 4
    assert run.span.cell == 3


def test_magics_do_not_stop_the_program(tmp_path: Path) -> None:
    cells = (
        "%%capture\n!pip install -q transformers\n%load_ext autoreload\nimport torch",
        "files = !ls\n%env A=1\nMODEL = 'org/a'\nmodel?\n?model\nif True:\n    !nvidia-smi\nBS = 2",
        "%%html\n<b>not python</b>",
        "%%bash\necho python train.py",
        TRAINER.replace("\nTrainer(", "\n%time Trainer("),
    )
    (run,) = read(notebook(*cells), tmp_path).runs
    assert (run.value("batch.micro_batch_size"), run.value("model.id")) == (2, "org/a")


def test_a_broken_cell_is_reported_and_left_out(tmp_path: Path) -> None:
    found = read(notebook("MODEL = 'org/a'; BS = 2", "this is not python (", TRAINER), tmp_path)
    assert len(found.runs) == 1
    (error,) = found.errors
    assert "cell 2" in error.message and error.line == 1


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["!torchrun --nproc_per_node 2 train.py --bs 3"], (3, 2)),
        (["N = 2\nBS = 3", "!torchrun --nproc_per_node {N} train.py \\\n    --bs $BS"], (3, 2)),
        (["%%bash\nBS=3\ntorchrun --nproc_per_node 2 train.py --bs $BS"], (3, 2)),
        (["%env N=2", "!torchrun --nproc_per_node $N train.py --bs 3"], (3, 2)),
        (["import os\nos.environ['N'] = '2'", "!torchrun --nproc_per_node $N train.py --bs 3"], (3, 2)),
        (["%cd sub", "!torchrun --nproc_per_node 2 ../train.py --bs 3"], (3, 2)),
        (["if True:\n    !torchrun --nproc_per_node 2 train.py --bs 3"], (3, 2)),
    ],
)
def test_launches(cells: list[str], expected: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "sub").mkdir()
    (run,) = read(notebook(*cells), tmp_path).runs
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == expected
    assert run.span.cell == len(cells)


def test_a_python_variable_that_is_no_constant_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (run,) = read(notebook("BS = pick()", "!python train.py --bs {BS}"), tmp_path).runs
    assert not run.facts["batch.micro_batch_size"].known


def test_written_files_point_into_their_cell(tmp_path: Path) -> None:
    (run,) = read(notebook("%%writefile job.py" + TRAIN, "!python job.py --bs 6"), tmp_path).runs
    assert run.value("batch.micro_batch_size") == 6
    place = run.facts["precision"].origin[0].span
    row = ("%%writefile job.py" + TRAIN).split("\n")[place.line - 1]
    assert (place.cell, row[place.column - 1 : place.end_column - 1]) == (1, "True")


@pytest.mark.parametrize(
    ("metadata", "card"),
    [
        ({"colab": {"gpuType": "T4"}}, "T4"),
        ({"colab": {"gpuType": "A100"}}, "A100"),
        ({"kaggle": {"accelerator": "nvidiaTeslaP100"}}, "P100"),
        ({"kaggle": {"accelerator": "none"}}, None),
        ({"colab": {}}, None),
        ({}, None),
    ],
)
def test_the_accelerator_of_the_metadata(metadata: dict[str, Any], card: str | None, tmp_path: Path) -> None:
    (run,) = read(notebook("MODEL = 'org/a'; BS = 2", TRAINER, metadata=metadata), tmp_path).runs
    assert run.value("hardware.gpu") == card


def test_dead_cells(tmp_path: Path) -> None:
    assert read(notebook("MODEL = 'a'; BS = 1", f"if False:\n    pass\n    {TRAINER.splitlines()[0]}"), tmp_path).runs == ()


BROKEN = ["", "{", "[]", '"text"', '{"cells": 3}', '{"metadata": {}}', "[" * 100_000, "null", '{"cells": ']
ODD: list[Any] = [
    None, 3, {}, {"cell_type": "code"}, {"cell_type": "code", "source": None}, {"cell_type": "code", "source": [1, None]},
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_notebook(text: str) -> None:
    with pytest.raises(ReadError):
        read_notebook(Source("n.ipynb", Kind.NOTEBOOK, text))


@pytest.mark.parametrize("cell", ODD)
def test_odd_cells_are_passed_over(cell: Any) -> None:
    text = json.dumps({"cells": [cell], "metadata": []})
    read_notebook(Source("n.ipynb", Kind.NOTEBOOK, text))


def test_version_three_of_the_format() -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": "x = 1"}]}], "nbformat": 3}
    assert read_notebook(Source("n.ipynb", Kind.NOTEBOOK, json.dumps(old))).program == "x = 1\n"


def test_cells_that_are_not_python_are_one_error(tmp_path: Path) -> None:
    """Instructions typed into code cells (`curl ... | bash`) say once that they are left out, by cell and line."""
    cells = ("curl https://sdk.example | bash", "MODEL, BS = 'gpt2', 1\n" + TRAINER, "# first\ngcloud compute create\n")
    path = tmp_path / "notes.ipynb"
    path.write_text(notebook(*cells), encoding="utf-8")
    (error,) = extract(str(path)).errors
    assert (error.message, error.line) == ("cells 1 and 3 are not Python (cell 1, line 1: invalid syntax)", 1)
    path.write_text(notebook(*cells[1:]), encoding="utf-8")
    (error,) = extract(str(path)).errors
    assert error.message == "cell 2, line 2: invalid syntax"


def test_lines_that_python_decides_about(tmp_path: Path) -> None:
    """`%run` starts a script, a loop starts a line once a value, a command may be put together before, a dead block starts nothing."""
    (tmp_path / "train.py").write_text(TRAIN)
    cells = (
        "%run train.py --bs 2",
        'BS = 5\ncommand = f"python train.py --bs {BS} --model " + "org/b"\n!{command}',
        "if False:\n    !python train.py --bs 99",
        "for bs in [10, 11]:\n    !python train.py --bs {bs}",
    )
    first, second, looped = read(notebook(*cells), tmp_path).runs
    assert (first.value("batch.micro_batch_size"), first.span.cell) == (2, 1)
    assert (second.value("batch.micro_batch_size"), second.value("model.id")) == (5, "org/b")
    assert looped.facts["batch.micro_batch_size"].choices == (10, 11)
    assert looped.span.cell == 4
