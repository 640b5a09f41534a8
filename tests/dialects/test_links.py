"""Files that configurations are made of: FSDP and DeepSpeed options in files of their own, Hydra's defaults lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import Project, extract
from memlint.facts import TrainingRun
from memlint.launch import read_launch
from memlint.source import Kind, Source


def run_of(folder: Path, files: dict[str, str], name: str) -> TrainingRun:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (run,) = extract(str(folder / name)).runs
    return run


TRAINER = "model_name_or_path: a/b\nmax_length: 512\nlearning_rate: 1e-5\nper_device_train_batch_size: 1\n"
FACTORY = "model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: full\nper_device_train_batch_size: 1\n"
SWIFT = "model: a/b\ntuner_type: full\ndataset: d\nmax_length: 512\n"


@pytest.mark.parametrize("text", [TRAINER, FACTORY, SWIFT], ids=["trl", "llama_factory", "ms_swift"])
def test_fsdp_options_stand_in_a_file(tmp_path: Path, text: str) -> None:
    files = {"c.yaml": text + "fsdp: full_shard auto_wrap\nfsdp_config: fsdp.json\n",
             "fsdp.json": '{"fsdp_version": 2, "cpu_offload": true}'}  # fmt: skip
    run = run_of(tmp_path, files, "c.yaml")
    assert run.value("parallel.strategy") == "fsdp2"
    assert run.value("parallel.offload_params") == "cpu"
    place = run.facts["parallel.offload_params"].origin[0].span
    assert place is not None
    assert (Path(place.path).name, place.line) == ("fsdp.json", 1)
    assert [Path(file).name for file in run.files] == ["c.yaml", "fsdp.json"]


@pytest.mark.parametrize("text", [TRAINER, FACTORY, SWIFT], ids=["trl", "llama_factory", "ms_swift"])
def test_an_engine_stands_in_a_file(tmp_path: Path, text: str) -> None:
    files = {"c.yaml": text + "deepspeed: ds/z3.json\n", "ds/z3.json": '{"zero_optimization": {"stage": 3}}'}
    assert run_of(tmp_path, files, "c.yaml").value("parallel.strategy") == "zero3"


VERL = {
    "config/mine.yaml": "defaults:\n  - base\n  - actor@actor_rollout_ref.actor: dp\n  - _self_\n"
    "actor_rollout_ref:\n  model: {path: org/m}\ndata: {max_response_length: 2048}\ntrainer: {nnodes: 2, n_gpus_per_node: 8}\n",
    "config/base.yaml": "data: {max_prompt_length: 1024, max_response_length: 512, train_batch_size: 8}\ntrainer: {nnodes: 1}\n",
    "config/actor/dp.yaml": "ppo_micro_batch_size_per_gpu: 4\nfsdp_config: {param_offload: true}\n",
}


def test_a_defaults_list_is_composed(tmp_path: Path) -> None:
    run = run_of(tmp_path, VERL, "config/mine.yaml")
    assert run.dialect == "verl_ppo"
    assert run.value("batch.micro_batch_size") == 4
    assert run.value("batch.prompt_length") == 1024
    assert run.value("batch.completion_length") == 2048
    assert run.value("parallel.nodes") == 2
    place = run.facts["batch.micro_batch_size"].origin[0].span
    assert place is not None
    assert (Path(place.path).name, place.line) == ("dp.yaml", 1)
    assert {Path(file).name for file in run.files} == {"mine.yaml", "base.yaml", "dp.yaml"}


def test_the_file_itself_comes_last_unless_it_says_where(tmp_path: Path) -> None:
    first = {
        **VERL,
        "config/mine.yaml": VERL["config/mine.yaml"].replace("  - base\n", "").replace("  - _self_\n", "  - _self_\n  - base\n"),
    }
    assert run_of(tmp_path, first, "config/mine.yaml").value("batch.completion_length") == 512
    last = {**VERL, "config/mine.yaml": VERL["config/mine.yaml"].replace("  - _self_\n", "")}
    assert run_of(tmp_path, last, "config/mine.yaml").value("batch.completion_length") == 2048


def test_a_circle_of_defaults_ends(tmp_path: Path) -> None:
    files = {**VERL, "config/base.yaml": "defaults: [mine]\ndata: {max_prompt_length: 1024}\n"}
    assert run_of(tmp_path, files, "config/mine.yaml").value("batch.prompt_length") == 1024


def test_a_launch_names_the_configuration(tmp_path: Path) -> None:
    run_of(tmp_path, VERL, "config/mine.yaml")
    path = tmp_path / "run.sh"
    line = "python -m verl.trainer.main_ppo --config-path=config --config-name=mine data.max_prompt_length=256\n"
    path.write_text(line)
    (run,) = read_launch(Source(str(path), Kind.SHELL, line), Project.around(str(path))).runs
    assert (run.value("batch.prompt_length"), run.value("batch.completion_length"), run.value("model.id")) == (256, 2048, "org/m")
    line = "python -m verl.trainer.main_ppo --config-name=of_the_package actor_rollout_ref.model.path=org/n\n"
    (run,) = read_launch(Source(str(path), Kind.SHELL, line), Project.around(str(path))).runs
    assert run.value("model.id") == "org/n"
