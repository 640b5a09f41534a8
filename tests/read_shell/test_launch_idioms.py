"""Idioms of launch scripts, by what bash makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import extract
from memlint.project import Project

TRAIN = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
a = p.parse_args()
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", per_device_train_batch_size=a.bs)).train()
"""


def batches(folder: Path, script: str) -> list[object]:
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "run.sh").write_text(script, encoding="utf-8")
    return [run.facts["batch.micro_batch_size"].value for run in extract(str(folder / "run.sh"), Project(root=folder)).runs]


@pytest.mark.parametrize(
    "script",
    [
        "declare -A M=([a]=4 [b]=8)\nK=a\npython train.py --bs ${M[$K]}\n",
        "declare -A M\nM[a]=4\npython train.py --bs ${M[a]}\n",
        "A=(2 4 8)\ni=0\npython train.py --bs ${A[i+1]}\n",
        "printf -v X '%d' 4\npython train.py --bs $X\n",
        "read -r X Y <<< '4 8'\npython train.py --bs $X\n",
        "f() { echo 4; }\npython train.py --bs $(f)\n",
        "python train.py --bs $((1 << 2))\n",
        "let 'X=2*2'\npython train.py --bs $X\n",
        "python train.py `# --lr 1` --bs 4\n",
        "cat > x.sh <<EOF\npython train.py --bs 4\nEOF\nbash x.sh\n",
        "tmux new-session -d -s t 'python train.py --bs 4'\n",
        "ssh host 'cd here && python train.py --bs 4'\n",
        "sbatch --gres=gpu:2 --wrap='python train.py --bs 4'\n",
        f"python - <<EOF\n{TRAIN.replace('default=8', 'default=4')}EOF\n",
    ],
)
def test_the_word_is_what_bash_makes_of_it(tmp_path: Path, script: str) -> None:
    assert batches(tmp_path, script) == [4]


def test_an_index_that_is_not_known_gives_no_element(tmp_path: Path) -> None:
    assert batches(tmp_path, "A=(2 4)\npython train.py --bs ${A[$TASK]}\n") == [None]


def test_hosts_of_mpirun_divide_the_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "run.sh").write_text("mpirun -np 8 -H a:4,b:4 python train.py\n", encoding="utf-8")
    (run,) = extract(str(tmp_path / "run.sh"), Project(root=tmp_path)).runs
    assert (run.facts["parallel.gpus"].value, run.facts["parallel.nodes"].value) == (4, 2)


@pytest.mark.parametrize(
    "before",
    [
        "PORT=$(comm -23 <(seq 2000 9000 | sort) <(ss -tan | sort -u) | shuf | head -n 1)\n",
        "comm -23 \\\n  <(seq 1 9) \\\n  <(ss -Htan |\n    sort -u) | shuf\n",
        "exec > >(tee log) 2> >(tee errors >&2)\n",
        "while read line; do echo $line; done < <(ls)\n",
    ],
)
def test_process_substitution_is_a_word(tmp_path: Path, before: str) -> None:
    """The idioms by which Slurm scripts find a free port and keep their log."""
    assert batches(tmp_path, before + "python train.py --bs 4 > >(tee out)\n") == [4]
