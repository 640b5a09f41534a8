"""Launches in Makefiles, Dockerfiles, job files and launch.json, as make, docker and the schedulers would run them."""

from __future__ import annotations

from pathlib import Path

from test_launchers import TRAIN

from memlint.extract import extract
from memlint.facts import Status, TrainingRun
from memlint.project import Project


def only(name: str, text: str, folder: Path) -> TrainingRun:
    (folder / "train.py").write_text(TRAIN)
    (folder / ".git").mkdir(exist_ok=True)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    found = extract(str(folder / name))
    assert not found.errors
    (run,) = found.runs
    return run


def written(run: TrainingRun, key: str, text: str) -> str:
    span = run.facts[key].origin[0].span
    assert span is not None
    return text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]


def test_makefile(tmp_path: Path) -> None:
    text = (
        "N ?= 4\nBS := 2\n\nhelp:\n\t@echo python train.py\n\ntrain: data\n"
        "\t@GA=8; \\\n\ttorchrun --nproc_per_node=$(N) train.py --bs $(BS) --ga $$GA\n"
    )
    run = only("Makefile", text, tmp_path)
    assert (run.value("parallel.gpus"), run.facts["parallel.gpus"].status) == (4, Status.DEFAULT)
    assert (run.value("batch.micro_batch_size"), run.value("batch.gradient_accumulation_steps")) == (2, 8)
    assert written(run, "batch.micro_batch_size", text) == "2"


def test_dockerfile_lists(tmp_path: Path) -> None:
    text = 'FROM x\nENV CUDA_VISIBLE_DEVICES=0,1\nENTRYPOINT ["python", "train.py"]\nCMD ["--bs", "4"]\n'
    run = only("Dockerfile", text, tmp_path)
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == (4, 2)
    assert written(run, "batch.micro_batch_size", text) == "4"


def test_dockerfile_shell_form(tmp_path: Path) -> None:
    run = only("Dockerfile.train", "FROM x\nCMD torchrun --nproc_per_node 2 \\\n  train.py --bs 3\n", tmp_path)
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == (3, 2)


def test_github_workflow(tmp_path: Path) -> None:
    text = (
        "on: push\njobs:\n  train:\n    runs-on: gpu\n    env:\n      BS: 4\n    steps:\n      - uses: actions/checkout@v4\n"
        "      - run: |\n          pip install torch\n          python train.py --bs $BS \\\n            --ga 2\n"
    )
    run = only(".github/workflows/train.yml", text, tmp_path)
    assert (run.value("batch.micro_batch_size"), run.value("batch.gradient_accumulation_steps")) == (4, 2)
    assert run.facts["batch.gradient_accumulation_steps"].origin[0].span.line == 12


def test_skypilot(tmp_path: Path) -> None:
    text = (
        "resources:\n  accelerators: H100:8\nnum_nodes: 2\nenvs:\n  MODEL: org/m\nrun: |\n"
        "  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py --model ${MODEL}\n"
    )
    run = only("task.yaml", text, tmp_path)
    assert (run.value("parallel.gpus"), run.value("parallel.nodes"), run.value("hardware.gpu")) == (8, 2, "H100")
    assert (run.value("model.id"), run.facts["model.id"].status) == ("org/m", Status.DEFAULT)


def test_kubernetes(tmp_path: Path) -> None:
    text = (
        "kind: Job\nspec:\n  template:\n    spec:\n      containers:\n      - name: t\n"
        "        command: [torchrun, --nproc_per_node, '4']\n"
        "        args: ['train.py', '--bs', '6']\n        resources: {limits: {nvidia.com/gpu: 4}}\n"
    )
    run = only("job.yaml", text, tmp_path)
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == (6, 4)


def test_vscode(tmp_path: Path) -> None:
    text = (
        '{\n  // debug\n  "configurations": [{"type": "debugpy", "program": "${workspaceFolder}/train.py",\n'
        '    "args": ["--bs", "5"], "env": {"CUDA_VISIBLE_DEVICES": "1"}}]\n}\n'
    )
    run = only(".vscode/launch.json", text, tmp_path)
    assert (run.value("batch.micro_batch_size"), run.value("parallel.gpus")) == (5, 1)


def test_make_reads_the_whole_file_before_a_recipe_runs(tmp_path: Path) -> None:
    """GNU make manual, "How make Reads a Makefile", "Target-specific Variable Values"."""
    text = (
        "BS = $(SIZE)\nifeq ($(X),1)\nGA = 2\nendif\n"
        "small big:\n\tpython train.py --bs $(BS) --model $(MODEL)\n"
        "big: BS = 1\nwide: SIZE := 9\nwide:\n\t@python train.py \\\n\t  --bs $(BS) --ga $(GA)\n"
        "SIZE = 16\nMODEL ?= org/late\n"
    )
    path = tmp_path / "Makefile"
    (tmp_path / "train.py").write_text(TRAIN)
    path.write_text(text, encoding="utf-8")
    first, second = extract(str(path), Project(tmp_path)).runs
    assert (first.value("batch.micro_batch_size"), first.facts["batch.micro_batch_size"].status) == (16, Status.FIXED)
    assert (first.value("model.id"), first.facts["model.id"].status) == ("org/late", Status.DEFAULT)
    assert second.value("batch.micro_batch_size") == 9
    assert second.facts["batch.gradient_accumulation_steps"].status is Status.UNKNOWN


def test_accelerators_of_skypilot_as_a_mapping(tmp_path: Path) -> None:
    text = "resources:\n  accelerators: {A100-80GB: 4}\nrun: |\n  python train.py --bs 3\n"
    run = only("task.yaml", text, tmp_path)
    assert (run.value("parallel.gpus"), run.value("hardware.gpu")) == (4, "A100-80GB")


def test_replicas_of_a_pytorch_job_are_its_nodes(tmp_path: Path) -> None:
    role = (
        "      replicas: {}\n      template:\n        spec:\n          nodeSelector: {{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}\n"
        "          containers:\n          - name: t\n            command: [torchrun, train.py, --bs, '2']\n"
        "            resources: {{limits: {{nvidia.com/gpu: 4}}}}\n"
    )
    roles = f"    Master:\n{role.format(1)}    Worker:\n{role.format(3)}"
    text = f"kind: PyTorchJob\nspec:\n  nprocPerNode: '4'\n  pytorchReplicaSpecs:\n{roles}"
    run = only("job.yaml", text, tmp_path)
    assert (run.value("parallel.gpus"), run.value("parallel.nodes")) == (4, 4)
    assert run.value("hardware.gpu") == "NVIDIA-A100-SXM4-80GB"


def test_what_a_workflow_fills_in_is_unknown(tmp_path: Path) -> None:
    text = "jobs:\n  t:\n    steps:\n    - run: python train.py --bs ${{ matrix.bs }} --model org/m\n"
    run = only("w.yml", text, tmp_path)
    assert run.value("model.id") == "org/m"
    assert run.facts["batch.micro_batch_size"].status is Status.UNKNOWN
    assert "matrix.bs" in run.facts["batch.micro_batch_size"].reason
