"""Unsloth Studio, torchtitan, sd-scripts, Megatron-LM, Megatron-Bridge, NeMo and Lightning CLI. The examples are short pieces of the
frameworks' own; expected values follow from their sources at the commits that the dialect modules name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.dialects import by_name, read_config
from memlint.dialects.settle import settle
from memlint.extract import extract
from memlint.facts import Extraction, Fact, Status, TrainingRun, fixed
from memlint.source import Kind, Source


def read(text: str, path: str) -> Extraction:
    kind = Kind.TOML if path.endswith(".toml") else Kind.JSON if path.endswith(".json") else Kind.YAML
    return read_config(Source(path, kind, text))


def run_of(text: str, path: str = "config.yaml") -> TrainingRun:
    extraction = read(text, path)
    assert extraction.errors == ()
    (run,) = extraction.runs
    return run


def values(run: TrainingRun, *keys: str) -> tuple[Any, ...]:
    return tuple(run.value(key) for key in keys)


def flags(name: str, **native: Any) -> dict[str, Fact]:
    return settle(by_name(name).facts({key: fixed(value) for key, value in native.items()}))


# ---- Unsloth Studio ----

STUDIO = """model: unsloth/Qwen2.5-0.5B
data:
  dataset: tatsu-lab/alpaca
training:
  training_type: lora
  max_seq_length: 2048
  load_in_4bit: true
  batch_size: 2
  gradient_accumulation_steps: 4
  gradient_checkpointing: "unsloth"
lora:
  lora_r: 64
  lora_alpha: 16
  target_modules: "q_proj,v_proj"
"""


def test_studio() -> None:
    run = run_of(STUDIO)
    assert run.dialect == "unsloth_studio"
    keys = ("framework.name", "model.id", "batch.micro_batch_size", "batch.gradient_accumulation_steps", "batch.sequence_length",
            "checkpointing.enabled", "checkpointing.offload", "quantization.method", "adapter.method", "adapter.r", "optimizer.name",
            "adapter.target_modules")  # fmt: skip
    assert values(run, *keys) == ("unsloth", "unsloth/Qwen2.5-0.5B", 2, 4, 2048, True, True, "bnb_4bit", "lora", 64, "adamw_bnb_8bit",
                                  ["q_proj", "v_proj"])  # fmt: skip
    assert run.facts["precision"].decided_by == "gpu.bf16"


def test_studio_in_full_is_not_quantized() -> None:
    run = run_of(STUDIO.replace("training_type: lora", "training_type: full"))
    assert values(run, "adapter.method", "quantization.method") == ("none", "none")
    assert [(problem.name, problem.span.line) for problem in run.problems] == [("four-bit-without-effect", 7)]


@pytest.mark.parametrize(("word", "on", "offload"), [("'true'", True, False), ("none", False, False), ("anything", True, True)])
def test_studio_checkpointing_is_a_word(word: str, on: bool, offload: bool) -> None:
    run = run_of(STUDIO.replace('"unsloth"', word))
    assert values(run, "checkpointing.enabled", "checkpointing.offload") == (on, offload)


# ---- torchtitan ----

TITAN = """[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""


def test_torchtitan() -> None:
    run = run_of(TITAN, "llama3_8b.toml")
    keys = ("framework.name", "model.id", "batch.micro_batch_size", "batch.sequence_length", "precision", "model.dtype",
            "parallel.strategy", "checkpointing.mode", "optimizer.name", "parallel.reshard_after_forward",
            "parallel.last_layer_resharded", "loss.logits")  # fmt: skip
    assert values(run, *keys) == ("torchtitan", "meta-llama/Llama-3.1-8B", 1, 8192, "bf16-mixed", "float32", "fsdp2", "selective_op",
                                  "adamw_torch_fused", True, False, "full")  # fmt: skip
    assert run.sites[0].kind == "toml"
    place = run.facts["batch.micro_batch_size"].origin[0].span
    assert place is not None
    assert (place.line, place.column) == (7, 20)


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ('option = "op"', 'option = "3"', "checkpointing.layer_frequency", 3),
        ('mode = "selective"', 'mode = "full"', "checkpointing.mode", "full"),
        ('mode = "selective"', 'mode = "none"', "checkpointing.enabled", False),
        ("shard_degree = -1", "shard_degree = 1\ndata_parallel_replicate_degree = 4", "parallel.strategy", "ddp"),
        ("seq_len = 8192", 'seq_len = 8192\ndtype = "bfloat16"', "precision", "bf16-true"),
        ("seq_len = 8192", "seq_len = 8192\nenable_cpu_offload = true", "parallel.offload_optimizer", "cpu"),
        ("tensor_parallel_degree = 1", "tensor_parallel_degree = 2", "parallel.sequence_parallel", True),
        ("tensor_parallel_degree = 1", "pipeline_parallel_degree = 2", "parallel.reshard_after_forward", False),
        ('flavor = "8B"', 'flavor = "8B"\nconverters = ["float8"]', "compute.linear_dtype", "float8"),
    ],
)
def test_torchtitan_settings(old: str, new: str, key: str, value: Any) -> None:
    assert run_of(TITAN.replace(old, new), "c.toml").value(key) == value


def test_torchtitan_of_2024() -> None:
    text = ('[job]\ndump_folder = "o"\n[model]\nname = "llama3"\nflavor = "70B"\n[training]\nbatch_size = 2\nseq_len = 4096\n'
            "tensor_parallel_degree = 8\ncompile = true\n[experimental]\npipeline_parallel_degree = 2\n"
            "[metrics]\nlog_freq = 1\n")  # fmt: skip
    run = run_of(text, "c.toml")
    keys = ("batch.micro_batch_size", "parallel.tensor", "parallel.pipeline", "compile", "optimizer.name", "checkpointing.mode",
            "checkpointing.layer_frequency")  # fmt: skip
    assert values(run, *keys) == (2, 8, 2, True, "adamw_torch", "selective_layer", 2)


def test_torchtitan_of_2026_counts_tokens() -> None:
    facts = flags("torchtitan", **{"training.num_tokens_per_microbatch_per_dp_rank": 16384, "training.max_context_length": 8192})
    assert (facts["batch.micro_batch_size"].value, facts["batch.sequence_length"].value) == (2, 8192)


# ---- sd-scripts ----

KOHYA = """[model_arguments]
pretrained_model_name_or_path = "stabilityai/sdxl"
[training_arguments]
train_batch_size = 4
resolution = "1024,1024"
mixed_precision = "bf16"
gradient_checkpointing = true
optimizer_type = "AdamW8bit"
[network]
network_module = "networks.lora"
network_dim = 32
network_alpha = 16
"""


def test_sd_scripts() -> None:
    run = run_of(KOHYA, "config_file.toml")
    keys = ("framework.name", "model.id", "objective", "batch.micro_batch_size", "batch.image_size", "precision", "model.dtype",
            "checkpointing.enabled", "optimizer.name", "adapter.method", "adapter.r", "adapter.alpha", "adapter.dtype",
            "model.attention")  # fmt: skip
    assert values(run, *keys) == ("sd_scripts", "stabilityai/sdxl", "diffusion", 4, 1024, "bf16-mixed", "bfloat16", True,
                                  "adamw_bnb_8bit", "lora", 32, 16, "float32", "eager")  # fmt: skip


def test_sd_scripts_defaults() -> None:
    facts = flags("sd_scripts", pretrained_model_name_or_path="m", train_data_dir="d", sd_script="sdxl_train")
    found = [facts[key].value for key in ("batch.micro_batch_size", "precision", "model.dtype", "optimizer.name",
                                          "checkpointing.enabled", "adapter.method")]  # fmt: skip
    assert found == [1, "fp32", "float32", "adamw_torch", False, "none"]


@pytest.mark.parametrize(
    ("native", "dtype", "precision"),
    [
        ({"sd_script": "sdxl_train", "mixed_precision": "bf16"}, "float32", "bf16-mixed"),
        ({"sd_script": "sdxl_train", "mixed_precision": "bf16", "full_bf16": True}, "bfloat16", "bf16-true"),
        ({"sd_script": "flux_train", "mixed_precision": "bf16"}, "bfloat16", "bf16-mixed"),
        ({"sd_script": "flux_train_network", "mixed_precision": "bf16", "fp8_base": True}, "float8", "bf16-mixed"),
        ({"sd_script": "sd3_train", "mixed_precision": "fp16", "t5xxl": "t", "clip_g": "g"}, "float32", "fp16-mixed"),
    ],
)
def test_sd_scripts_weights(native: dict[str, Any], dtype: str, precision: str) -> None:
    facts = flags("sd_scripts", pretrained_model_name_or_path="m", **native)
    assert (facts["model.dtype"].value, facts["precision"].value) == (dtype, precision)


def test_data_sets_have_their_own_batches(tmp_path: Path) -> None:
    sets = """[general]
enable_bucket = true
[[datasets]]
resolution = 512
batch_size = 8
  [[datasets.subsets]]
  image_dir = 'C:\\hoge'
[[datasets]]
resolution = [768, 768]
batch_size = 2
"""
    (tmp_path / "sets.toml").write_text(sets)
    (tmp_path / "c.toml").write_text('dataset_config = "sets.toml"\n' + KOHYA)
    (run,) = extract(str(tmp_path / "c.toml")).runs
    assert run.facts["batch.micro_batch_size"].values == (8, 2)
    assert run.facts["batch.image_size"].values == (512, 768)
    assert [Path(file).name for file in run.files] == ["c.toml", "sets.toml"]
    (tmp_path / "sets.toml").write_text(sets.partition("[[datasets]]\nresolution = [768")[0])
    (run,) = extract(str(tmp_path / "c.toml")).runs
    assert values(run, "batch.micro_batch_size", "batch.image_size") == (8, 512)


def test_what_sd_scripts_refuses() -> None:
    text = KOHYA.replace(
        'mixed_precision = "bf16"', "full_bf16 = true\nfused_backward_pass = true\ngradient_accumulation_steps = 2"
    )
    found = [(problem.name, problem.span.line) for problem in run_of(text, "c.toml").problems]
    assert found == [("full-precision-mismatch", 6), ("optimizer-in-backward-with-accumulation", 7)]


# ---- Megatron-LM, Megatron-Bridge, NeMo ----

GPT = {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 4096, "micro_batch_size": 1, "bf16": True}


def test_megatron_describes_its_model() -> None:
    facts = flags("megatron", **GPT, swiglu=True, ffn_hidden_size=14336, group_query_attention=True, num_query_groups=8,
                  untie_embeddings_and_output_weights=True, vocab_size=128256, tensor_model_parallel_size=2)  # fmt: skip
    assert facts["model.config"].value == {
        "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "tie_word_embeddings": False, "vocab_size": 128256,
    }  # fmt: skip
    assert facts["model.padded_vocab_multiple"].value == 256


def test_megatron_widths_of_its_own() -> None:
    """Two thirds of 4 x 4096, down to a multiple of 64, with gates; 4 x 4096 without (`validate_args`)."""
    assert flags("megatron", **GPT, swiglu=True)["model.config"].value["intermediate_size"] == 10880
    plain = flags("megatron", **GPT, tokenizer_type="GPT2BPETokenizer")["model.config"].value
    assert (plain["intermediate_size"], plain["hidden_act"], plain["tie_word_embeddings"]) == (16384, "gelu", True)
    assert plain["vocab_size"] == 50257


@pytest.mark.parametrize(
    ("native", "mode"),
    [
        ({}, "none"),
        ({"recompute_activations": True}, "selective_core_attention"),
        ({"recompute_granularity": "selective"}, "selective_core_attention"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, "full"),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 32}, "full"),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 4}, None),
        ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, None),
    ],
)
def test_megatron_recomputation(native: dict[str, Any], mode: str | None) -> None:
    fact = flags("megatron", **GPT, **native)["checkpointing.mode"]
    assert fact.value == mode
    assert fact.known or fact.reason


def test_megatron_mixture_of_experts() -> None:
    config = flags("megatron", **GPT, swiglu=True, num_experts=8, moe_router_topk=2, moe_layer_freq="([0]*3+[1]*29)")[
        "model.config"
    ].value
    assert (config["model_type"], config["num_local_experts"], config["first_k_dense_replace"]) == ("mixtral", 8, 3)


def test_megatron_bridge_leaves_the_rest_to_the_recipe() -> None:
    text = ("dataset:\n  seq_length: 4096\ntrain:\n  global_batch_size: 128\n  micro_batch_size: 2\noptimizer:\n  lr: 0.0001\n"
            "checkpoint:\n  save: x\npeft:\n  dim: 8\n  alpha: 16\nmodel:\n  seq_length: 4096\n  tensor_model_parallel_size: 2\n"
            "  sequence_parallel: true\nmixed_precision: bf16_with_fp8_current_scaling_mixed\n"
            "ddp: {grad_reduce_in_fp32: true}\n")  # fmt: skip
    run = run_of(text)
    keys = ("framework.name", "batch.micro_batch_size", "batch.sequence_length", "parallel.tensor", "parallel.sequence_parallel",
            "adapter.method", "adapter.r", "precision", "compute.linear_dtype", "parallel.strategy")  # fmt: skip
    assert values(run, *keys) == ("megatron_bridge", 2, 4096, 2, True, "lora", 8, "bf16-true", "float8", "megatron")
    assert not run.facts["model.id"].known
    assert "parallel.pipeline" not in run.facts
    assert "checkpointing.enabled" not in run.facts


NEMO_1 = """trainer: {devices: 8, num_nodes: 2, precision: bf16, max_steps: 100}
model:
  micro_batch_size: 4
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  num_query_groups: 32
  activation: fast-swiglu
  share_embeddings_and_output_weights: False
  megatron_amp_O2: True
  activations_checkpoint_granularity: selective
  sequence_parallel: True
  optim: {name: distributed_fused_adam}
"""


def test_nemo_1() -> None:
    run = run_of(NEMO_1)
    keys = ("framework.name", "parallel.gpus", "parallel.nodes", "precision", "model.dtype", "optimizer.master_weights",
            "parallel.distributed_optimizer", "parallel.tensor", "parallel.sequence_parallel", "checkpointing.mode",
            "batch.sequence_length", "batch.global_batch_size")  # fmt: skip
    assert values(run, *keys) == (
        "nemo",
        8,
        2,
        "bf16-true",
        "bfloat16",
        True,
        True,
        2,
        True,
        "selective_core_attention",
        4096,
        64,
    )
    assert run.value("model.config")["intermediate_size"] == 11008
    without = run_of(NEMO_1.replace("megatron_amp_O2: True", "megatron_amp_O2: False"))
    assert values(without, "precision", "model.dtype", "optimizer.master_weights") == ("bf16-mixed", "float32", False)


def test_nemo_2() -> None:
    text = ("_target_: nemo.collections.llm.api.finetune\nmodel:\n  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel\n"
            "  config: {_target_: nemo.collections.llm.gpt.model.llama.Llama32Config1B}\ntrainer:\n  devices: 8\n  num_nodes: 1\n"
            "  strategy:\n    _target_: nemo.lightning.MegatronStrategy\n    tensor_model_parallel_size: 4\n    sequence_parallel: true\n"
            "  plugins: {_target_: nemo.lightning.MegatronMixedPrecision, precision: bf16-mixed}\n"
            "data: {micro_batch_size: 1, global_batch_size: 8, seq_length: 2048}\n"
            "peft: {_target_: nemo.collections.llm.peft.LoRA, dim: 16}\n")  # fmt: skip
    run = run_of(text)
    keys = ("model.id", "parallel.tensor", "parallel.gpus", "precision", "batch.sequence_length", "adapter.method", "adapter.r",
            "adapter.target_modules")  # fmt: skip
    assert values(run, *keys) == ("meta-llama/Llama-3.2-1B", 4, 8, "bf16-true", 2048, "lora", 16,
                                  ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"])  # fmt: skip


def test_swift_on_megatron() -> None:
    """`swift/megatron/arguments/megatron_args.py`: selective recomputation, the distributed optimizer and a fused loss unless stated."""
    text = ("model: a/b\ntuner_type: full\ndataset: d\nmax_length: 4096\nmicro_batch_size: 2\ntensor_model_parallel_size: 4\n"
            "sequence_parallel: true\n")  # fmt: skip
    run = run_of(text)
    keys = ("parallel.strategy", "parallel.tensor", "parallel.sequence_parallel", "checkpointing.mode", "loss.kernel",
            "parallel.distributed_optimizer", "batch.micro_batch_size", "parallel.expert_tensor")  # fmt: skip
    assert values(run, *keys) == ("megatron", 4, True, "selective_core_attention", "megatron_fused_ce", True, 2, 1)
    assert run_of(text + "recompute_granularity: none\n").value("checkpointing.enabled") is False


def test_swift_on_megatron_is_half_with_a_float32_master() -> None:
    """`_init_mixed_precision` and `_map_dtype`: half weights (float16 for a float32 checkpoint), gradients in float32 with bfloat16; a
    reference model beside full-parameter DPO (`rlhf_mixin.py`, `prepare_model`); 16 samples a step over 8 / (2 x 2) ranks."""
    text = ("model: a/b\nrlhf_type: dpo\ndataset: d\nmax_length: 4096\nmicro_batch_size: 2\ntensor_model_parallel_size: 2\n"
            "pipeline_model_parallel_size: 2\ndecoder_first_pipeline_num_layers: 23\noptimizer_cpu_offload: true\n"
            "optimizer_offload_fraction: 0.65\nENV: {NPROC_PER_NODE: 8}\n")  # fmt: skip
    keys = ("model.dtype", "precision", "optimizer.master_weights", "optimizer.grad_dtype", "reference_model", "parallel.gpus",
            "batch.gradient_accumulation_steps", "parallel.pipeline_first_layers", "parallel.offload_optimizer_share")  # fmt: skip
    run = run_of(text + "tuner_type: full\n")
    assert values(run, *keys) == ("bfloat16", "bf16-true", True, "float32", "copy", 8, 4, 23, 0.65)
    assert values(run_of(text + "tuner_type: full\ntorch_dtype: float32\n"), *keys[:4]) == (
        "float16",
        "fp16-true",
        True,
        "float16",
    )
    states = run_of(text + "tuner_type: full\nexp_avg_dtype: bf16\nexp_avg_sq_dtype: fp8\n")
    assert values(states, "optimizer.exp_avg_dtype", "optimizer.exp_avg_sq_dtype") == ("bfloat16", "float8")
    adapted = run_of(text + "tuner_type: lora\n")
    assert values(adapted, "reference_model", "adapter.dtype", "adapter.dropout") == ("none", "bfloat16", 0.05)


def test_verl_kernels() -> None:
    text = ("actor_rollout_ref:\n  model: {path: a/b, use_fused_kernels: true, use_remove_padding: true}\ndata: {train_batch_size: 8}\n"
            "trainer: {nnodes: 1}\n")  # fmt: skip
    assert values(run_of(text), "loss.logits", "batch.padding_free") == ("fused", True)


# ---- Lightning CLI ----

LIGHTNING = """seed_everything: 42
trainer:
  accelerator: gpu
  devices: 4
  strategy: {}
  precision: bf16-mixed
  accumulate_grad_batches: 8
  max_epochs: 3
model:
  class_path: mine.Classifier
  init_args: {{model_name_or_path: org/bert, learning_rate: 1e-5}}
data:
  class_path: mine.Data
  init_args: {{batch_size: 16, max_length: 256}}
"""


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ddp_find_unused_parameters_true", {"parallel.strategy": "ddp"}),
        ("deepspeed_stage_3_offload", {"parallel.strategy": "zero3", "parallel.offload_params": "cpu"}),
        ("fsdp", {"parallel.strategy": "fsdp1"}),
        ("auto", {"parallel.strategy": None}),
        ("{class_path: lightning.pytorch.strategies.FSDPStrategy, init_args: {sharding_strategy: SHARD_GRAD_OP, cpu_offload: true}}",
         {"parallel.strategy": "fsdp1", "parallel.fsdp_sharding": "shard_grad_op", "parallel.offload_params": "cpu"}),
        ("{class_path: lightning.pytorch.strategies.DeepSpeedStrategy, init_args: {stage: 3}}", {"parallel.strategy": "zero3"}),
    ],
)  # fmt: skip
def test_lightning(strategy: str, expected: dict[str, Any]) -> None:
    run = run_of(LIGHTNING.format(strategy))
    assert run.dialect == "lightning_cli"
    keys = ("framework.name", "parallel.gpus", "precision", "batch.gradient_accumulation_steps", "model.id", "batch.micro_batch_size",
            "batch.sequence_length")  # fmt: skip
    assert values(run, *keys) == ("lightning", 4, "bf16-mixed", 8, "org/bert", 16, 256)
    assert {key: run.value(key) for key in expected} == expected


TEACHER = """model: {_component_: torchtune.models.qwen2.lora_qwen2_0_5b, lora_attn_modules: [q_proj]}
teacher_model: {_component_: torchtune.models.qwen2.NAME}
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
kd_loss: {_component_: torchtune.modules.loss.ForwardKLWithChunkedOutputLoss}
batch_size: 8
dtype: bf16
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("ac_mode: selective\nac_option: 2\nenable_activation_checkpointing: False\n", (True, "selective_layer", 2)),
        ("ac_mode: selective\nac_option: op\n", (True, "selective_op", None)),
        ("ac_mode: selective\nac_option: 2\nenable_activation_checkpointing: True\n", (True, None, None)),
    ],
)
def test_torchtune_selective_checkpointing(lines: str, expected: tuple[Any, ...]) -> None:
    run = run_of(TEACHER.replace("NAME", "qwen2_0_5b") + lines)
    assert values(run, "checkpointing.enabled", "checkpointing.mode", "checkpointing.layer_frequency") == expected


def test_torchtune_teachers() -> None:
    run = run_of(TEACHER.replace("NAME", "qwen2_1_5b"))
    assert values(run, "model.id", "adapter.method", "objective") == ("qwen2_0_5b", "lora", "knowledge_distillation")
    assert "qwen2_1_5b" in run.facts["reference_model"].reason
    assert run_of(TEACHER.replace("NAME", "qwen2_0_5b")).value("reference_model") == "copy"


def test_what_is_not_stated_is_not_known() -> None:
    run = run_of("trainer: {max_epochs: 3, devices: auto}\nmodel: {class_path: mine.M}\ndata: {class_path: mine.D}\n")
    for key in ("parallel.gpus", "model.id", "batch.micro_batch_size", "precision"):  # 32-true leaves the module as it is
        assert not run.facts[key].known
        assert run.facts[key].reason
    assert run.value("batch.gradient_accumulation_steps") == 1


# ---- and nothing else ----

OTHERS = {
    "pyproject.toml": '[project]\nname = "train"\n[tool.x]\nseq_len = 1\npretrained_model_name_or_path = "m"\n',
    "inference.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[inference]\nseq_len = 4\n',
    "sets.toml": "[general]\nenable_bucket = true\n[[datasets]]\nresolution = 512\nbatch_size = 8\n",
    "Cargo.toml": '[package]\nname = "seq_len"\n',
    "broken.toml": "just text about base_model",
    "service.yaml": "train: {image: x}\nmodel: {seq_length: 4}\nlogger: {level: info}\ndataset: {path: d}\n",
    "app.yaml": "trainer: {class_path: x}\nmodel: {class_path: y}\n",
    "adapter_config.json": '{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "a/b", "max_seq_length": 5}',
    "training.yaml": "training: {batch_size: 4, learning_rate: 1e-3}\nlora: {rank: 8}\n",
}


@pytest.mark.parametrize("path", OTHERS)
def test_other_files_give_nothing(path: str) -> None:
    found = read(OTHERS[path], path)
    assert found.runs == ()
    assert [error.path for error in found.errors] == (["broken.toml"] if path == "broken.toml" else [])


def test_words_of_another_script_leave_the_adapter_open(tmp_path: Path) -> None:
    """Firefly's `parse_json_file` settings: `lora_rank` is no argument of TRL, so the script behind it makes the adapter."""
    file = tmp_path / "sft.json"
    file.write_text(
        '{"model_name_or_path": "meta-llama/Llama-2-13b-hf", "per_device_train_batch_size": 2, "learning_rate": 2e-4, '
        '"max_seq_length": 1024, "lora_rank": 64, "gradient_checkpointing": true, "fp16": true}',
        encoding="utf-8",
    )
    (run,) = extract(str(file)).runs
    assert run.facts["adapter.method"].status is Status.UNKNOWN
    assert "lora_rank" in run.facts["adapter.method"].reason
    assert run.facts["quantization.method"].status is Status.UNKNOWN
    file.write_text(file.read_text(encoding="utf-8").replace("{", '{"load_in_4bit": true, ', 1), encoding="utf-8")
    (run,) = extract(str(file)).runs
    assert values(run, "quantization.method") == ("bnb_4bit",)
    file.write_text(file.read_text(encoding="utf-8").replace("max_seq_length", "max_steps"), encoding="utf-8")
    (run,) = extract(str(file)).runs  # nothing of TRL's is left: plain training arguments
    assert run.facts["adapter.method"].status is Status.UNKNOWN


def test_deepspeeds_less_usual_zero_options() -> None:
    """DeepSpeed 0.19 `runtime/zero/config.py`, `offload_config.py`, `mics.py`, `runtime/config.py`: explicit zeros are values."""
    run = run_of(
        """{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "zero_optimization": {"stage": 3, "sub_group_size": 0,
        "stage3_max_reuse_distance": 0, "zero_hpz_partition_size": 8, "zero_quantized_weights": true, "mics_shard_size": 4,
        "zero_quantized_gradients": true, "zero_quantized_nontrainable_weights": false,
        "offload_optimizer": {"device": "nvme", "buffer_count": 5, "ratio": 0.6}}}""",
        "ds.json",
    )
    expected = {
        "sub_group_size": 0, "max_reuse_distance": 0, "secondary_shard": 8, "quantized_weights": True, "quantized_gradients": True,
        "quantized_frozen": False, "data_shard": 4, "offload_optimizer": "nvme", "swap_buffers": 5, "context": 2, "context_comm": "a2a",
        "offload_optimizer_share": 0.6,
    }  # fmt: skip
    assert {name: run.value(f"parallel.{name}") for name in expected} == expected


PIPELINES = [
    ("local_batch_size = 8", "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'GPipe'", 8),
    ("local_batch_size = 8", "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = 2", 4),
    ("batch_size = 8", "[experimental]\npipeline_parallel_degree = 4", 4),
]


@pytest.mark.parametrize(("batch", "pipeline", "pieces"), PIPELINES)
def test_torchtitan_cuts_its_batch_for_a_pipeline(batch: str, pipeline: str, pieces: int) -> None:
    """One sample a piece; until 2025 one piece a rank (`parallelisms/pipelining_utils.py`)."""
    model = "[job]\ndump_folder = './outputs'\n[model]\nname = 'llama3'\nflavor = '8B'\n"
    run = run_of(f"{model}[training]\nseq_len = 2048\nsteps = 10\n{batch}\n{pipeline}\n", "train.toml")
    assert run.value("parallel.pipeline_micro_batches") == pieces
