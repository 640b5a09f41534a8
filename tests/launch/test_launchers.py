"""GPUs, nodes and strategy as the launchers' own manuals define them; a script that prints nothing but what it was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import Project
from memlint.facts import Status, TrainingRun
from memlint.launch import read_launch
from memlint.source import Kind, Source

TRAIN = """
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gpt2")
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--ga", type=int, default=1)
parser.add_argument("--gc", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
training = TrainingArguments("out", per_device_train_batch_size=args.bs, gradient_accumulation_steps=args.ga, bf16=True,
                             gradient_checkpointing=args.gc)
Trainer(model=model, args=training, train_dataset=[]).train()
"""


def runs(shell: str, folder: Path, **files: str) -> tuple[TrainingRun, ...]:
    (folder / "train.py").write_text(TRAIN)
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_dot_", ".")).write_text(text)
    path = str(folder / "run.sh")
    found = read_launch(Source(path, Kind.SHELL, shell), Project.around(path))
    assert not found.errors
    return found.runs


def only(shell: str, folder: Path, **files: str) -> TrainingRun:
    (run,) = runs(shell, folder, **files)
    return run


# (launch line, GPUs a node, nodes, strategy); None: not stated
LAUNCHES = [
    ("torchrun --nproc_per_node=4 train.py", 4, 1, "ddp"),
    ("torchrun --nproc-per-node 8 --nnodes 2 --rdzv-backend c10d train.py", 8, 2, "ddp"),
    ("torchrun --standalone --nproc_per_node 2 train.py", 2, 1, "ddp"),
    ("torchrun --nnodes=2:2 --nproc_per_node=1 train.py", 1, 2, "ddp"),
    ("torchrun train.py", 1, 1, "none"),
    ("python -m torch.distributed.launch --use_env --nproc_per_node 4 train.py", 4, 1, "ddp"),
    ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu train.py", 3, 1, "ddp"),
    ("PET_NPROC_PER_NODE=2 torchrun train.py", 2, 1, "ddp"),
    # accelerate counts every process of every machine
    ("accelerate launch --multi_gpu --num_machines 2 --num_processes 16 train.py", 8, 2, "ddp"),
    ("accelerate launch --num_processes=4 --mixed_precision bf16 train.py", 4, 1, "ddp"),
    ("accelerate launch --num_processes 1 train.py", 1, 1, "none"),
    ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch train.py", 2, 1, "ddp"),
    ("accelerate launch --num_processes 8 --use_deepspeed --zero_stage 3 train.py", 8, 1, "zero3"),
    ("accelerate launch --num_processes 8 --use_deepspeed train.py", 8, 1, "zero2"),
    ("accelerate launch --num_processes 4 --use_fsdp --fsdp_version 2 train.py", 4, 1, "fsdp2"),
    ("accelerate launch --num_processes 4 --use_fsdp train.py", 4, 1, "fsdp1"),
    ("deepspeed --num_gpus 4 train.py", 4, 1, "ddp"),
    ("deepspeed --num_gpus=8 --num_nodes=2 train.py", 8, 2, "ddp"),
    ("deepspeed --include localhost:0,2 train.py", 2, 1, "ddp"),
    ("deepspeed -i worker-0:0,1@worker-1:0,1 train.py", 2, 2, "ddp"),
    ("CUDA_VISIBLE_DEVICES=4,5 deepspeed --master_port 1 train.py", 2, 1, "ddp"),
    # one process that sees several GPUs: the HF Trainer wraps the model in DataParallel
    ("CUDA_VISIBLE_DEVICES=0,1 python train.py", 2, None, "dp"),
    ("CUDA_VISIBLE_DEVICES=1 python train.py", 1, None, None),
    ("mpirun -np 4 -x A=1 python train.py", 4, None, None),
]


@pytest.mark.parametrize(("line", "gpus", "nodes", "strategy"), LAUNCHES)
def test_world(line: str, gpus: int, nodes: int | None, strategy: str | None, tmp_path: Path) -> None:
    run = only(line + " --model m --bs 2\n", tmp_path)
    assert run.value("parallel.gpus") == gpus
    if nodes is not None:
        assert run.value("parallel.nodes") == nodes
    if strategy is not None:
        assert run.value("parallel.strategy") == strategy
    assert run.value("model.id") == "m"
    assert run.value("batch.micro_batch_size") == 2


WRAPPED = [
    "nohup torchrun --nproc_per_node 2 train.py --bs 2 > log 2>&1 &",
    "env -u X A=1 torchrun --nproc_per_node 2 train.py --bs 2",
    "time torchrun --nproc_per_node 2 train.py --bs 2 | tee log",
    "exec torchrun --nproc_per_node 2 train.py --bs 2",
    "srun --container-image=x torchrun --nproc_per_node 2 train.py --bs 2",
    "srun bash -c 'torchrun --nproc_per_node 2 train.py --bs 2'",
    'bash -c "cd . && torchrun --nproc_per_node 2 train.py --bs 2"',
    "uv run --with x torchrun --nproc_per_node 2 train.py --bs 2",
    "conda run -n env torchrun --nproc_per_node 2 train.py --bs 2",
    "docker run --rm -v $PWD:/w image torchrun --nproc_per_node 2 train.py --bs 2",
    "singularity exec --nv image.sif torchrun --nproc_per_node 2 train.py --bs 2",
    "ray job submit --address x -- torchrun --nproc_per_node 2 train.py --bs 2",
    "python submit.py --cluster c -- torchrun --nproc_per_node 2 train.py --bs 2",
    "CUDA_LAUNCH_BLOCKING=1 numactl -N 0 torchrun --nproc_per_node 2 train.py --bs 2",
    "if ! torchrun --nproc_per_node 2 train.py --bs 2; then echo failed; fi",
    "OUT=x; mkdir -p $OUT && torchrun --nproc_per_node 2 train.py --bs 2 || exit 1",
    "cmd='torchrun --nproc_per_node 2 train.py --bs 2'; echo $cmd; eval $cmd",
    "main() { torchrun --nproc_per_node 2 train.py --bs 2; }; main",
]


@pytest.mark.parametrize("line", WRAPPED)
def test_wrappers(line: str, tmp_path: Path) -> None:
    run = only(line + "\n", tmp_path)
    assert (run.value("parallel.gpus"), run.value("batch.micro_batch_size")) == (2, 2)


NOT_LAUNCHES = [
    "# python train.py --bs 4",
    "echo python train.py --bs 4",
    "echo 'torchrun train.py' > note.txt",
    "cat <<EOF\npython train.py --bs 4\nEOF",
    "grep train.py log",
    "usage='python train.py --bs 4'",
    "if false; then python train.py; fi",
    "exit 0\npython train.py",
    "python -c 'import train.py'",
    "pip install train.py",
    "launch() { python train.py; }",
]


@pytest.mark.parametrize("text", NOT_LAUNCHES)
def test_no_launch(text: str, tmp_path: Path) -> None:
    assert runs(text + "\n", tmp_path) == ()


def test_slurm_header_gives_nodes_gpus_and_the_card(tmp_path: Path) -> None:
    header = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4  # four\n#SBATCH --ntasks-per-node=4\n"
    run = only(header + "srun python train.py\n", tmp_path)
    assert (run.value("parallel.gpus"), run.value("parallel.nodes"), run.value("hardware.gpu")) == (4, 2, "a100")
    assert run.facts["parallel.gpus"].origin[0].span.line == 3


def test_slurm_variables_reach_the_launcher(tmp_path: Path) -> None:
    header = "#SBATCH -N 3\n#SBATCH --gpus-per-node 8\n#SBATCH --ntasks-per-node 1\n"
    line = "torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE train.py --bs $((64 / SLURM_NTASKS))\n"
    run = only(header + "srun " + line, tmp_path)
    assert (run.value("parallel.gpus"), run.value("parallel.nodes")) == (8, 3)
    assert run.value("batch.micro_batch_size") == 21  # 64 // 3


def test_hostfile(tmp_path: Path) -> None:
    run = only("deepspeed --hostfile hosts train.py\n", tmp_path, hosts="a slots=4\n# b slots=9\nc slots=4\n")
    assert (run.value("parallel.gpus"), run.value("parallel.nodes")) == (4, 2)


def test_branches_are_choices_and_stay_together(tmp_path: Path) -> None:
    shell = 'if [ "$C" = a ]; then N=8; else N=4; fi\ntorchrun --nproc_per_node=$N train.py --bs 2 --ga $((64 / N))\n'
    run = only(shell, tmp_path)
    assert run.facts["parallel.gpus"].choices == (8, 4)
    assert run.facts["batch.gradient_accumulation_steps"].choices == (8, 16)


def test_case_without_default_is_choices(tmp_path: Path) -> None:
    shell = "case $SIZE in\n 7b) BS=4 ;;\n 13b) BS=2 ;;\n *) echo usage; exit 1 ;;\nesac\n"
    shell += "python train.py --model m-$SIZE --bs $BS\n"
    run = only(shell, tmp_path)
    assert run.facts["model.id"].choices == ("m-7b", "m-13b")
    assert run.facts["batch.micro_batch_size"].choices == (4, 2)


def test_flag_only_in_one_branch(tmp_path: Path) -> None:
    run = only('if [ "$BIG" = 1 ]; then ARGS="--gc"; fi\npython train.py $ARGS\n', tmp_path)
    assert set(run.facts["checkpointing.enabled"].choices) == {True, False}


@pytest.mark.parametrize(
    "shell",
    [
        'BS=$1\nif [ "$BS" == "" ]; then BS=4; fi\npython train.py --bs $BS\n',
        'if [ -z "$BS" ]; then BS=4; fi\npython train.py --bs $BS\n',
        "BS=${1:-4}\npython train.py --bs $BS\n",
        '[ -n "$BS" ] || BS=4\npython train.py --bs $BS\n',
        'BS=4\nif [ -n "$1" ]; then BS=$1; fi\npython train.py --bs $BS\n',
        'BS=4\nwhile [[ $# -gt 0 ]]; do case $1 in --bs) BS="$2"; shift 2 ;; *) exit 1 ;; esac; done\npython train.py --bs $BS\n',
        'BS=4\nwhile getopts "b:" o; do case $o in b) BS=$OPTARG ;; esac; done\npython train.py --bs $BS\n',
        "if [ $# -ge 1 ]; then BS=$1; else BS=4; fi\npython train.py --bs $BS\n",
    ],
)
def test_what_the_caller_may_change_is_a_default(shell: str, tmp_path: Path) -> None:
    fact = only(shell, tmp_path).facts["batch.micro_batch_size"]
    assert (fact.value, fact.status) == (4, Status.DEFAULT)


@pytest.mark.parametrize(
    "shell",
    [
        "python train.py --bs $1\n",
        'if [ -z "$1" ]; then echo usage; exit 1; fi\npython train.py --bs $1\n',
        'BS=""\nwhile [ $# -gt 0 ]; do BS=$2; shift; done\n[ -z "$BS" ] && exit 1\npython train.py --bs "$BS"\n',
        "read -p 'size? ' BS\npython train.py --bs $BS\n",
        "python train.py --bs $(nproc)\n",
        "for i in $LIST; do python train.py --bs $i; done\n",
    ],
)
def test_what_only_the_caller_knows_is_unknown(shell: str, tmp_path: Path) -> None:
    fact = only(shell, tmp_path).facts["batch.micro_batch_size"]
    assert fact.status is Status.UNKNOWN
    assert fact.reason


def test_loop_values_are_choices(tmp_path: Path) -> None:
    run = only("for bs in 1 2 4; do python train.py --bs $bs; done\n", tmp_path)
    assert run.facts["batch.micro_batch_size"].choices == (1, 2, 4)


def test_two_launches_are_two_runs_in_order(tmp_path: Path) -> None:
    first, second = runs("python train.py --bs 1\npython train.py --bs 2\n", tmp_path)
    assert (first.value("batch.micro_batch_size"), first.span.line) == (1, 1)
    assert (second.value("batch.micro_batch_size"), second.span.line) == (2, 2)


def test_a_value_points_at_the_text_that_sets_it(tmp_path: Path) -> None:
    shell = 'BS=16\nFLAGS="--gc --bs $BS"\npython train.py $FLAGS \\\n  --model "org/model"\n'
    run = only(shell, tmp_path)
    lines = shell.split("\n")

    def written(key: str) -> str:
        span = run.facts[key].origin[0].span
        assert span is not None and span.line == span.end_line
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]

    assert written("batch.micro_batch_size") == "16"
    assert written("model.id") == "org/model"


def test_options_cut_off_by_a_comment_are_reported(tmp_path: Path) -> None:
    run = only("python train.py \\\n  --bs 4 \\\n  # --ga 2 \\\n  --gc\n", tmp_path)
    assert run.value("checkpointing.enabled") is False  # bash ends the command at the comment
    assert [problem.name for problem in run.problems] == ["launch-cut-short"]
    assert run.problems[0].span.line == 4


def test_scripts_in_scripts(tmp_path: Path) -> None:
    inner = 'torchrun --nproc_per_node ${2:-1} train.py --bs $1 --ga $GA "${@:3}"\n'
    run = only("export GA=4\nbash inner.sh 3 2\n", tmp_path, inner_dot_sh=inner)
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == (3, 2)
    assert run.value("batch.gradient_accumulation_steps") == 4


def test_sourced_settings(tmp_path: Path) -> None:
    run = only("source env.sh\npython train.py --bs $BS\n", tmp_path, env_dot_sh="export BS=5\n")
    assert run.value("batch.micro_batch_size") == 5
    assert run.facts["batch.micro_batch_size"].origin[0].span.path.endswith("env.sh")


def test_script_folder_idiom(tmp_path: Path) -> None:
    shell = 'DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"\npython "$DIR/train.py" --bs 3\n'
    assert only(shell, tmp_path).value("batch.micro_batch_size") == 3


def test_precision_given_twice_is_a_contradiction(tmp_path: Path) -> None:
    run = only("accelerate launch --num_processes 2 --mixed_precision fp16 train.py\n", tmp_path)
    assert run.value("precision") == "bf16-mixed"  # TrainingArguments(bf16=True) sets ACCELERATE_MIXED_PRECISION itself
    assert "contradiction" in [problem.name for problem in run.problems]


def test_broken_shell_text_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = str(tmp_path / "run.sh")
    found = read_launch(Source(path, Kind.SHELL, 'A=1\npython train.py --bs "4\n'), Project.around(path))
    assert (found.runs, found.errors[0].line, found.errors[0].column) == ((), 2, 22)


@pytest.mark.parametrize(
    "text",
    [
        "$(" * 500 + ")" * 500,
        "(" * 500,
        "{ " * 300,
        "A=" + "$((1+" * 200 + "1" + "))" * 200,
        "f() { f; }; f\n",
        "f() { f; f; }; f\n",
        "while true; do :; done\npython train.py\n",
        "for i in {1..100000}; do for j in {1..100000}; do python x.py; done; done\n",
        "A=x; " + "A=$A$A; " * 60 + "python $A\n",
        "eval eval eval 'eval $0'\n",
        "bash run.sh\n",
        "echo $((9**9**9))\n",
        "\0\1\2",
        "if [ $A ]; then B=1; fi\n" * 200 + "python train.py --bs $B\n",
    ],
)
def test_bounded(text: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run.sh")
    (tmp_path / "run.sh").write_text(text)
    read_launch(Source(path, Kind.SHELL, text), Project.around(path))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node 2 train.py", False),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True torchrun --nproc_per_node 2 train.py", True),
        ("export PYTORCH_ALLOC_CONF=expandable_segments:False\npython train.py", False),
    ],
)
def test_the_allocator_is_set_by_the_environment(line: str, expected: bool, tmp_path: Path) -> None:
    (run,) = runs(line, tmp_path)
    assert run.value("hardware.expandable_segments") is expected
