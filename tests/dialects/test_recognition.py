"""Which files are training configurations: by their content, and never one that is something else."""

from __future__ import annotations

import pytest

from memlint.dialects import by_name, read_config
from memlint.facts import Extraction
from memlint.source import Kind, Source


def read(text: str, path: str = "config.yaml") -> Extraction:
    kind = Kind.JSON if path.endswith(".json") else Kind.YAML
    return read_config(Source(path, kind, text))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("axolotl", "base_model: a/b\nmicro_batch_size: 1\n"),
        ("axolotl", "base_model: a/b\ndatasets:\n  - path: x\n"),
        ("llama_factory", "model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\n"),
        ("llama_factory_v1", "model: a/b\ntrain_dataset: d.yaml\nmicro_batch_size: 1\npeft_config:\n  name: lora\n"),
        (
            "torchtune",
            "model:\n  _component_: torchtune.models.llama2.llama2_7b\nbatch_size: 2\n"
            "optimizer:\n  _component_: torch.optim.AdamW\ndtype: bf16\n",
        ),
        ("litgpt", "checkpoint_dir: checkpoints/a/b\ntrain:\n  micro_batch_size: 1\nprecision: bf16-true\n"),
        ("ms_swift", "model: a/b\ntuner_type: lora\ndataset: d\nmax_length: 2048\n"),
        ("verl_ppo", "actor_rollout_ref:\n  model: {path: a/b}\ndata: {train_batch_size: 8}\ntrainer: {nnodes: 1}\n"),
        ("verl", "data: {train_batch_size: 8}\nmodel: {partial_pretrain: a/b}\ntrainer: {nnodes: 1}\n"),
        ("verl", "defaults: [{model@model: hf_model}, _self_]\ndata: {micro_batch_size_per_gpu: 8}\ntrainer: {nnodes: 1}\n"),
        ("verl_ppo", "defaults: [ppo_megatron_trainer, _self_]\nmine: {x: 1}\n"),
        (
            "megatron_yaml",
            "ENV_VARS: {NCCL_ALGO: Ring}\nMODEL_ARGS:\n  --micro-batch-size: 2\n  --num-layers: 12\n  --train-iters: 50\n",
        ),
        ("trl_yaml", "model_name_or_path: a/b\nmax_length: 1024\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n"),
        (
            "open_instruct",
            "model_name_or_path: a/b\nmax_seq_length: 4096\nper_device_train_batch_size: 1\nwith_tracking: true\n"
            "use_slow_tokenizer: true\n",
        ),
        ("ludwig", "model_type: llm\nbase_model: a/b\ntrainer: {type: finetune}\ninput_features: []\nadapter: {type: lora}\n"),
        ("accelerate", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 2\n"),
        ("run_yaml", "schema: memlint.run.v1\nmodel.id: a/b\n"),
    ],
)
def test_a_configuration_is_recognised_with_a_reason(dialect: str, text: str) -> None:
    (run,) = read(text).runs
    assert run.dialect == dialect
    assert run.recognised_by
    assert run.sites[0].dialect == dialect
    assert run.span.line == 1


def test_a_deepspeed_json_is_recognised() -> None:
    (run,) = read('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}', "ds.json").runs
    assert (run.dialect, run.value("parallel.strategy"), run.value("batch.micro_batch_size")) == ("deepspeed", "zero2", 4)


OTHERS = {
    "github workflow": (
        "name: train\non: [push]\njobs:\n  train:\n    runs-on: gpu\n    steps:\n"
        "      - run: python train.py --model_name_or_path a/b --per_device_train_batch_size 8\n"
    ),
    "docker compose": (
        "services:\n  trainer:\n    image: pytorch\n    environment:\n      base_model: a/b\n      micro_batch_size: 4\n"
        "    deploy: {resources: {reservations: {devices: [{driver: nvidia}]}}}\n"
    ),
    "helm values": "replicaCount: 1\nmodel:\n  name: a/b\n  torch_dtype: bfloat16\nresources:\n  limits: {nvidia.com/gpu: 1}\n",
    "kubernetes job": (
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n"
        "        - args: ['--model_name_or_path', 'a/b', '--micro_batch_size', '1']\n"
    ),
    "pre-commit": (
        "repos:\n  - repo: https://x\n    rev: v1\n    hooks: [{id: memlint, args: [--set, 'batch.micro_batch_size=1']}]\n"
    ),
    "vllm serving": "model: a/b\ndtype: bfloat16\ntensor-parallel-size: 2\ntorch_dtype: bfloat16\n",
    "mergekit": "base_model: a/b\nmerge_method: ties\nmodels:\n  - model: c/d\ndtype: bfloat16\n",
    "LLaMA-Factory export": (
        "model_name_or_path: a/b\nadapter_name_or_path: x\ntemplate: llama3\nfinetuning_type: lora\nexport_dir: out\n"
    ),
    "LLaMA-Factory chat": "model_name_or_path: a/b\ntemplate: llama3\ninfer_backend: huggingface\nfinetuning_type: lora\n",
    "LLaMA-Factory prediction": (
        "model_name_or_path: a/b\nstage: sft\ndo_predict: true\nfinetuning_type: lora\ncutoff_len: 2048\n"
    ),
    "torchtune generation": "model:\n  _component_: torchtune.models.llama2.llama2_7b\nmax_new_tokens: 300\ndtype: bf16\n",
    "torchtune evaluation": "model:\n  _component_: torchtune.models.llama2.llama2_7b\nbatch_size: 8\ntasks: [truthfulqa]\n",
    "Ludwig for inference": (
        "model_type: llm\nbase_model: a/b\ntrainer: {type: none}\ninput_features: []\nadapter: {type: lora}\n"
    ),
    "schema metadata": "base_model:\n  _meta: {x: 1}\nadapter:\n  lora: {expected_impact: 2}\n",
    "results of an evaluation": '{"base_model": "a/b", "adapter": "runs/x/checkpoint-9", "n": 200, "accuracy": 0.25}',
    "model card metadata": "base_model: a/b\nlicense: mit\ntags: [lora]\n",
    "dataset list": "- model_name_or_path: a/b\n  per_device_train_batch_size: 8\n",
    "scalar": "just model_name_or_path text\n",
    "mkdocs": "site_name: Axolotl\ntheme: {name: material}\nnav:\n  - base_model: index.md\n  - micro_batch_size: x.md\n",
    "conda environment": "name: train\nchannels: [conda-forge]\ndependencies:\n  - pip:\n    - deepspeed\n    - transformers==4.46.3\n",
    "dependabot": "version: 2\nupdates:\n  - package-ecosystem: pip\n    directory: /train_batch_size\n",
    "argo workflow": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec:\n  arguments:\n    parameters:\n"
        "      - {name: model_name_or_path, value: a/b}\n      - {name: max_seq_length, value: '4096'}\n"
    ),
    "config map": 'apiVersion: v1\nkind: ConfigMap\ndata:\n  ds.json: \'{"zero_optimization": {"stage": 3}}\'\n',
    "openapi": "openapi: 3.0.0\npaths: {/train: {post: {parameters: [{name: per_device_train_batch_size, in: query}]}}}\n",
    "evaluation harness": "model: hf\nmodel_args: {pretrained: a/b, dtype: bfloat16}\ntasks: [mmlu]\nbatch_size: 8\ntrain_batch_size: 1\n",
    "wandb sweep": (
        "program: train.py\nmethod: bayes\nparameters:\n  micro_batch_size: {values: [1, 2]}\n  base_model: {value: a/b}\n"
    ),
    "hydra group": "# @package _group_\nmicro_batch_size: 4\nseq_length: 2048\n",
    "quantisation recipe": "quant_stage:\n  quant_modifiers:\n    GPTQModifier: {scheme: W4A16}\nmodel_name_or_path: a/b\n",
    "tensor parallel overlap": "qkv_fprop: {tp_size: 4, num_sm: 4}\nmicro_batch_size: 1\nseq_length: 2048\n",
    "Megatron-LM generation": "MODEL_ARGS:\n  --num-layers: 12\n  --micro-batch-size: 1\n  --num-tokens-to-generate: 20\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_give_nothing(name: str) -> None:
    assert read(OTHERS[name]) == Extraction()


OTHER_JSON = {
    "package.json": '{"name": "base_model", "scripts": {"train": "x"}, "dependencies": {"torch_dtype": "1"}}',
    "adapter_config.json": '{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "a/b", "target_modules": ["q_proj"]}',
    "config.json": '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64}',
    "tokenizer_config.json": '{"model_max_length": 4096, "tokenizer_class": "x", "torch_dtype": null}',
    "trainer_state.json": '{"train_batch_size": 8, "global_step": 10, "log_history": []}',
    "data.json": '[{"instruction": "base_model"}]',
    "tsconfig.json": '{"compilerOptions": {"target": "es2022"}, "include": ["train_batch_size"]}',
    "kernel-metadata.json": '{"id": "me/train", "kernel_type": "notebook", "enable_gpu": true, "model_sources": ["torch_dtype/llama"]}',
    "dataset-metadata.json": '{"title": "max_seq_length", "id": "me/data", "licenses": [{"name": "CC0-1.0"}]}',
    "devcontainer.json": '{"image": "x", "postCreateCommand": "pip install deepspeed zero_optimization"}',
    "training_args_dump.json": '{"global_step": 1, "steps_per_print": 10}',
    "package-lock.json": '{"lockfileVersion": 3, "packages": {"node_modules/x": {"name": "model_name_or_path"}}}',
}


@pytest.mark.parametrize("path", OTHER_JSON)
def test_other_json_files_give_nothing(path: str) -> None:
    assert read(OTHER_JSON[path], path) == Extraction()


def test_a_file_that_does_not_parse_is_an_error_only_if_it_looks_like_a_configuration() -> None:
    assert read("{{ template }}: [") == Extraction()
    broken = read("base_model: a/b\nmicro_batch_size: [1\n")
    assert not broken.runs
    assert [(error.path, error.line) for error in broken.errors] == [("config.yaml", 2)]


def test_each_document_of_a_file_is_a_run_of_its_own() -> None:
    text = "base_model: a/b\nmicro_batch_size: 1\n---\nname: other\n---\nbase_model: c/d\nmicro_batch_size: 2\n"
    runs = read(text).runs
    assert [(run.value("model.id"), run.span.line) for run in runs] == [("a/b", 1), ("c/d", 6)]


def test_dialects_are_found_by_every_name_they_have() -> None:
    for name in (
        "axolotl",
        "llama-factory",
        "llamafactory",
        "llama_factory",
        "ms-swift",
        "trl",
        "trl-yaml",
        "hf",
        "deepspeed",
        "peft",
    ):
        assert callable(by_name(name).write)
    with pytest.raises(LookupError):
        by_name("../os")
    with pytest.raises(LookupError):
        by_name("nothing_of_that_name")
