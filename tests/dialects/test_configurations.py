"""What each configuration dialect makes of its file. Expected values follow from the frameworks' sources at the commits that the
dialect modules name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.dialects import by_name, read_config
from memlint.facts import Status, TrainingRun, fixed
from memlint.project import Project
from memlint.source import Kind, Source


def run_of(text: str, path: str = "c.yaml", project: Project | None = None) -> TrainingRun:
    kind = Kind.JSON if path.endswith(".json") else Kind.YAML
    extraction = read_config(Source(path, kind, text), project)
    assert extraction.errors == ()
    (run,) = extraction.runs
    return run


def values(run: TrainingRun, *keys: str) -> tuple[Any, ...]:
    return tuple(run.value(key) for key in keys)


def problems(run: TrainingRun) -> list[tuple[str, int]]:
    return [(problem.name, problem.span.line) for problem in run.problems]


# ---- axolotl ----

AXOLOTL = "base_model: a/b\nmicro_batch_size: 2\n"


def test_axolotl_defaults() -> None:
    run = run_of(AXOLOTL)
    keys = ("batch.micro_batch_size", "batch.gradient_accumulation_steps", "batch.sequence_length", "batch.packing",
            "optimizer.name",
            "checkpointing.enabled", "adapter.method", "quantization.method", "eval.enabled", "loss.logits",
            "objective")  # fmt: skip
    assert values(run, *keys) == (2, 1, 512, False, "adamw_torch_fused", False, "none", "none", False, "full", "causal_lm")
    assert run.facts["batch.sequence_length"].status is Status.DEFAULT
    assert run.facts["batch.micro_batch_size"].status is Status.FIXED
    assert run.facts["batch.micro_batch_size"].origin[0].span.line == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "precision", "dtype"),
    [
        ("", ("bf16-mixed", "fp16-mixed"), ("bfloat16", "float16")),
        ("bf16: auto\n", ("bf16-mixed", "fp16-mixed"), ("bfloat16", "float16")),
        ("bf16: auto\nfp16:\n", ("bf16-mixed", "fp16-mixed"), ("bfloat16", "float16")),
        ("bf16: auto\nfp16: false\n", ("bf16-mixed", "fp32"), ("bfloat16", "float32")),
        ("bf16: auto\nfp16: true\n", ("fp16-mixed",), ("float16",)),
        ("bf16: true\n", ("bf16-mixed",), ("bfloat16",)),
        ("bf16: 'true'\n", ("bf16-mixed",), ("bfloat16",)),
        ("bf16: full\n", ("bf16-true",), ("bfloat16",)),
        ("bf16: false\nfp16: true\n", ("fp16-mixed",), ("float16",)),
        ("bf16: false\nfloat16: true\n", ("fp16-true",), ("float16",)),
        ("bf16: false\n", ("fp32",), ("float32",)),
        ("bfloat16: true\nbf16: false\n", ("bf16-mixed",), ("bfloat16",)),
    ],
)
def test_axolotl_precision(text: str, precision: tuple[str, ...], dtype: tuple[str, ...]) -> None:
    run = run_of(AXOLOTL + text)
    assert run.facts["precision"].values == precision
    assert run.facts["model.dtype"].values == dtype
    if len(precision) == 2:
        assert run.facts["precision"].decided_by == "gpu.bf16"


@pytest.mark.parametrize(
    ("text", "enabled", "offload", "reentrant"),
    [
        ("gradient_checkpointing: true\n", True, None, True),
        ("gradient_checkpointing: offload\n", True, True, True),
        ("gradient_checkpointing: true\nactivation_offloading: true\n", True, True, True),
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n", True, None, False),
        ("gradient_checkpointing: true\nrl: dpo\n", True, None, False),
        ("gradient_checkpointing: true\nunfrozen_parameters: [lm_head]\n", True, None, False),
        ("gradient_checkpointing:\n", False, None, None),
    ],
)
def test_axolotl_checkpointing(text: str, enabled: bool, offload: bool | None, reentrant: bool | None) -> None:
    run = run_of(AXOLOTL + text)
    assert values(run, "checkpointing.enabled", "checkpointing.offload", "checkpointing.use_reentrant") == (
        enabled,
        offload,
        reentrant,
    )


@pytest.mark.parametrize(
    ("sizes", "shard", "gpus"),
    [
        ("dp_shard_size: 1\ntensor_parallel_size: 1\n", None, None),  # sets no mesh up: FSDP shards over whatever is launched
        ("dp_shard_size: 2\ntensor_parallel_size: 2\n", 2, 4),
        ("dp_shard_size: 2\nexpert_parallel_size: 2\n", 2, 4),  # "world size 4 minimum", says its example
    ],
)
def test_axolotl_parallel_sizes(sizes: str, shard: int | None, gpus: int | None) -> None:
    run = run_of(f"{AXOLOTL}{sizes}fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n")
    assert values(run, "parallel.strategy", "parallel.data_shard", "parallel.gpus") == ("fsdp2", shard, gpus)


def test_axolotl_qlora() -> None:
    run = run_of(AXOLOTL + "adapter: qlora\nload_in_4bit: true\nbf16: true\nlora_r: 16\nlora_target_linear: true\n")
    keys = ("adapter.method", "adapter.r", "adapter.target_modules", "quantization.method", "quantization.quant_type",
            "quantization.double_quant", "quantization.compute_dtype", "quantization.storage_dtype")  # fmt: skip
    assert values(run, *keys) == ("lora", 16, "all-linear", "bnb_4bit", "nf4", True, "bfloat16", "bfloat16")


@pytest.mark.parametrize(
    ("line", "raised"), [("embeddings_skip_upcast: true", False), ("embeddings_skip_upcast: false", True), ("", None)]
)
def test_axolotl_may_leave_the_embedding_as_it_is_loaded(line: str, raised: bool | None) -> None:
    """`if self.cfg.load_in_4bit and self.cfg.embeddings_skip_upcast: embedding_modules = []`."""
    run = run_of(f"base_model: m\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: 1\n{line}\n")
    assert run.value("model.load_upcast") is raised


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("load_in_4bit: true\n", "four-bit-without-adapter"),
        ("fp16: true\nbf16: true\n", "fp16-and-bf16-both"),
        ("deepspeed: a.json\nfsdp_config: {offload_params: true}\n", "deepspeed-and-fsdp"),
        ("batch_size: 8\ngradient_accumulation_steps: 2\n", "batch-size-twice"),
        ("rl: dpo\nsample_packing: true\n", "packing-with-rl"),
        ("activation_offloading: true\n", "offload-without-checkpointing"),
        ("adapter: qlora\nload_in_4bit: false\nload_in_8bit: true\n", "qlora-in-8-bit"),
        ("adapter: lora\nload_in_4bit: true\n", "four-bit-without-effect"),
        ("adapter: qlora\n", "four-bit-needs-qlora"),
    ],
)
def test_what_axolotl_refuses_is_a_problem(text: str, name: str) -> None:
    assert [found for found, _ in problems(run_of(AXOLOTL + text))] == [name]


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("val_set_size: 0.1\nevals_per_epoch: 2\n", True),
        ("val_set_size: 0.1\neval_steps: 10\n", True),
        ("val_set_size: 0.1\n", False),
        ("val_set_size: 0\nevals_per_epoch: 2\n", False),
        ("val_set_size: 0.1\neval_strategy: 'no'\n", False),
        ("test_datasets: [{path: x}]\neval_steps: 5\n", True),
    ],
)
def test_axolotl_evaluates_with_data_and_a_rhythm(text: str, enabled: bool) -> None:
    assert run_of(AXOLOTL + text).value("eval.enabled") is enabled


@pytest.mark.parametrize(
    ("text", "fused"),
    [
        ("", True),
        ("lora_dropout: 0.05\n", True),
        ("lora_mlp_kernel: false\n", False),
        ("rl: dpo\n", False),
        ("trust_remote_code: true\n", False),
        ("fsdp_config: {fsdp_offload_params: true}\n", False),
        ("fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n", True),
    ],
)
def test_axolotl_switches_its_lora_kernels_on(text: str, fused: bool) -> None:
    """`check_auto_enable_lora_kernels` of its schema."""
    run = run_of(f"base_model: a/b\nadapter: qlora\nload_in_4bit: true\n{text}")
    assert ("lora" in (run.value("kernels") or ())) == fused


def test_axolotl_placeholders_are_unknown_and_nothing_is_refused_for_them() -> None:
    run = run_of("base_model: ${BASE_MODEL}\nmicro_batch_size: ${BS}\nload_in_4bit: ${Q}\ndeepspeed: ${DS}\nfsdp: ${FSDP}\n")
    assert not any(
        run.facts[key].known for key in ("model.id", "batch.micro_batch_size", "quantization.method", "parallel.strategy")
    )
    assert run.problems == ()


def test_a_linked_deepspeed_file_is_followed_and_becomes_a_site(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds").mkdir()
    (tmp_path / "examples").mkdir()
    (tmp_path / "ds" / "z3.json").write_text(
        '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},\n "train_micro_batch_size_per_gpu": 4}'
    )
    file = tmp_path / "examples" / "x.yaml"
    text = AXOLOTL + "deepspeed: ds/z3.json\n"
    file.write_text(text)
    run = run_of(text, str(file), Project.around(str(file)))
    assert values(run, "parallel.strategy", "parallel.offload_params", "parallel.offload_optimizer") == ("zero3", "cpu", "none")
    assert [site.dialect for site in run.sites] == ["axolotl", "deepspeed"]
    assert len(run.files) == 2
    (problem,) = run.problems
    assert (problem.name, problem.span.line) == ("deepspeed-arguments-mismatch", 2)
    origin = run.facts["parallel.strategy"].origin
    assert [Path(link.span.path).name for link in origin if link.span] == ["z3.json", "x.yaml"]


def test_a_missing_link_leaves_the_strategy_unknown() -> None:
    run = run_of(AXOLOTL + "deepspeed: nowhere.json\n", project=Project.around("."))
    assert "nowhere.json" in run.facts["parallel.strategy"].reason


# ---- LLaMA-Factory ----

LLAMA_FACTORY = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\nlearning_rate: 1e-4\n"


def test_llama_factory_checkpoints_unless_it_is_switched_off() -> None:
    assert run_of(LLAMA_FACTORY).value("checkpointing.enabled") is True
    off = run_of(LLAMA_FACTORY + "disable_gradient_checkpointing: true\n")
    assert off.value("checkpointing.enabled") is False
    ignored = run_of(LLAMA_FACTORY + "gradient_checkpointing: false\n")
    assert ignored.value("checkpointing.enabled") is True
    assert problems(ignored) == [("checkpointing-key-without-effect", 5)]


@pytest.mark.parametrize(
    ("text", "precision", "dtype"),
    [
        ("bf16: true\n", "bf16-mixed", "bfloat16"),
        ("bf16: true\nfinetuning_type: full\n", "bf16-mixed", "float32"),
        ("pure_bf16: true\nfinetuning_type: full\n", "bf16-true", "bfloat16"),
        ("finetuning_type: full\n", "fp32", "float32"),
        ("fp16: true\n", "fp16-mixed", "float16"),
        ("", None, None),
    ],
)
def test_llama_factory_precision(text: str, precision: str | None, dtype: str | None) -> None:
    run = run_of(
        (LLAMA_FACTORY if "finetuning_type" not in text else LLAMA_FACTORY.replace("finetuning_type: lora\n", "")) + text
    )
    assert values(run, "precision", "model.dtype") == (precision, dtype)


@pytest.mark.parametrize(
    ("text", "objective", "reference"),
    [
        ("stage: dpo\n", "dpo", "none"),
        ("stage: dpo\nfinetuning_type: full\n", "dpo", "copy"),
        ("stage: dpo\nfinetuning_type: full\npref_loss: orpo\n", "orpo", "none"),
        ("stage: kto\nfinetuning_type: full\n", "kto", "copy"),
        ("stage: rm\n", "reward", "none"),
        ("stage: dpo\nref_model: c/d\n", "dpo", "copy"),
        ("stage: pt\n", "causal_lm", "none"),
    ],
)
def test_llama_factory_stages(text: str, objective: str, reference: str) -> None:
    lines = [line for line in LLAMA_FACTORY.splitlines(keepends=True) if line.partition(":")[0] not in text]
    base = "".join(lines)
    run = run_of(base + text)
    assert values(run, "objective", "reference_model") == (objective, reference)


@pytest.mark.parametrize(("switch", "known"), [("use_kt: true", False), ("use_kt: false", True), ("", True)])
def test_llama_factory_does_not_judge_experts_that_ktransformers_keeps_on_the_cpu(switch: str, known: bool) -> None:
    """`hparams/model_args.py`: `use_kt` wraps the experts on the CPU; LLaMA-Factory's example has 235 B parameters and no sharding."""
    run = run_of(f"{LLAMA_FACTORY}{switch}\n")
    assert (run.value("model.id") is not None) is known


def test_llama_factory_adapter_and_quantization() -> None:
    run = run_of(
        LLAMA_FACTORY + "quantization_bit: 4\nlora_rank: 16\nlora_target: q_proj,v_proj\nbf16: true\nadditional_target: lm_head\n"
    )
    keys = ("adapter.r", "adapter.alpha", "adapter.target_modules", "adapter.modules_to_save", "quantization.method",
            "quantization.double_quant", "quantization.storage_dtype")  # fmt: skip
    assert values(run, *keys) == (16, 32, ["q_proj", "v_proj"], ["lm_head"], "bnb_4bit", True, "bfloat16")
    refused = run_of(LLAMA_FACTORY.replace("lora", "full") + "quantization_bit: 4\n")
    assert problems(refused) == [("four-bit-without-adapter", 5)]


def test_llama_factory_refuses_unknown_keys() -> None:
    run = run_of(LLAMA_FACTORY + "per_device_train_batchsize: 4\nsomething_of_my_own: 1\n")
    (problem,) = run.problems
    assert (problem.name, problem.span.line) == ("unknown-key", 5)
    assert "'per_device_train_batch_size'" in problem.message


# ---- torchtune ----

TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3_1.{builder}
  {arguments}
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: {length}
checkpointer:
  checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct/
batch_size: 2
optimizer:
  _component_: {optimizer}
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: bf16
{more}
"""


def torchtune(
    builder: str = "llama3_1_8b",
    arguments: str = "x: 1",
    length: str = "null",
    optimizer: str = "torch.optim.AdamW",
    more: str = "",
) -> TrainingRun:
    return run_of(TORCHTUNE.format(builder=builder, arguments=arguments, length=length, optimizer=optimizer, more=more))


def test_torchtune_holds_everything_in_its_dtype() -> None:
    run = torchtune()
    keys = ("model.dtype", "precision", "optimizer.name", "loss.logits", "adapter.method", "quantization.method", "model.id")
    expected = ("bfloat16", "bf16-true", "adamw_torch", "chunked", "none", "none", "/tmp/Meta-Llama-3.1-8B-Instruct")
    assert values(run, *keys) == expected
    assert not run.facts["batch.sequence_length"].known


@pytest.mark.parametrize(
    ("builder", "arguments", "adapter", "quantization"),
    [
        ("lora_llama3_1_8b", "lora_attn_modules: [q_proj, output_proj]", "lora", "none"),
        ("qlora_llama3_1_8b", "lora_attn_modules: [q_proj, output_proj]", "lora", "torchao_nf4"),
        (
            "lora_llama3_1_8b",
            "lora_attn_modules: [q_proj, output_proj]\n  use_dora: True\n  quantize_base: True",
            "dora",
            "torchao_nf4",
        ),
    ],
)
def test_the_builders_name_chooses_adapter_and_quantization(
    builder: str, arguments: str, adapter: str, quantization: str
) -> None:
    run = torchtune(builder, arguments)
    assert values(run, "adapter.method", "quantization.method") == (adapter, quantization)
    assert run.value("adapter.target_modules") == ["q_proj", "o_proj"]


@pytest.mark.parametrize(
    ("component", "name"),
    [
        ("bitsandbytes.optim.PagedAdamW8bit", "paged_adamw_8bit"),
        ("torch.optim.SGD", "sgd"),
        ("torch.optim.AdamW\n  fused: True", "adamw_torch_fused"),
    ],
)
def test_torchtune_optimizers(component: str, name: str) -> None:
    assert torchtune(optimizer=component).value("optimizer.name") == name


def test_what_torchtune_recipes_refuse() -> None:
    run = torchtune(more="optimizer_in_bwd: True\ngradient_accumulation_steps: 4\nenable_activation_offloading: True")
    assert [name for name, _ in problems(run)] == ["optimizer-in-backward-with-accumulation", "offload-without-checkpointing"]


def test_torchtune_interpolates() -> None:
    assert torchtune(more="batch_size_val: ${batch_size}\nrun_val_every_n_steps: 10").value("eval.batch_size") == 2


# ---- litgpt ----


def test_litgpt_world_and_accumulation() -> None:
    text = (
        "checkpoint_dir: checkpoints/a/b\nprecision: bf16-true\ndevices: {}\ntrain:\n  global_batch_size: 16\n"
        "  micro_batch_size: 2\n"
    )
    one, four = run_of(text.format(1)), run_of(text.format(4))
    keys = ("batch.gradient_accumulation_steps", "parallel.strategy", "checkpointing.enabled", "model.id")
    assert values(one, *keys) == (8, "none", False, "a/b")
    assert values(four, *keys) == (2, "fsdp1", True, "a/b")
    every = run_of(text.format("auto"))
    assert not every.facts["parallel.gpus"].known
    assert "batch.gradient_accumulation_steps" not in every.facts


def test_litgpt_without_precision_asks_the_card() -> None:
    run = run_of("checkpoint_dir: checkpoints/a/b\nlora_r: 8\ntrain:\n  micro_batch_size: 2\n")
    assert run.facts["precision"].choices == ("bf16-mixed", "fp16-mixed")
    assert run.value("adapter.target_modules") == ["q_proj", "v_proj"]


def test_litgpt_quantization() -> None:
    text = "checkpoint_dir: checkpoints/a/b\nlora_r: 8\nprecision: {}\nquantize: {}\ndevices: {}\ntrain:\n  micro_batch_size: 2\n"
    run = run_of(text.format("bf16-true", "bnb.nf4-dq", 1))
    assert values(run, "quantization.method", "quantization.quant_type", "quantization.double_quant") == ("bnb_4bit", "nf4", True)
    names = [name for name, _ in problems(run_of(text.format("bf16-mixed", "bnb.nf4", 2)))]
    assert names == ["quantize-with-mixed-precision", "quantize-on-several-gpus"]


# ---- ms-swift, verl, accelerate, DeepSpeed ----


def test_ms_swift_defaults_and_presets() -> None:
    run = run_of("model: a/b\ntuner_type: lora\ntorch_dtype: bfloat16\ndataset: d\ndeepspeed: zero3_offload\n")
    keys = (
        "batch.micro_batch_size",
        "checkpointing.enabled",
        "adapter.alpha",
        "precision",
        "parallel.strategy",
        "parallel.offload_params",
    )
    assert values(run, *keys) == (1, True, 32, "bf16-mixed", "zero3", "cpu")
    assert not run.facts["batch.sequence_length"].known
    assert not run.facts["batch.gradient_accumulation_steps"].known
    assert "parallel.reduce_bucket_size" not in run.facts  # "auto" in swift/config/zero3_offload.json
    assert run.value("parallel.gather_weights_on_save") is True
    smaller = facts_of("ms_swift", model="a/b", deepspeed="zero2")
    assert smaller["parallel.reduce_bucket_size"] == 200_000_000  # swift/config/zero2.json; DeepSpeed's own is 500 million


def test_ms_swift_megatron() -> None:
    run = run_of(
        "model: a/b\ntuner_type: lora\nmicro_batch_size: 2\nmax_length: 4096\ntensor_model_parallel_size: 4\ndataset: d\n"
    )
    keys = ("parallel.strategy", "batch.micro_batch_size", "parallel.tensor", "checkpointing.mode")
    assert values(run, *keys) == ("megatron", 2, 4, "selective_core_attention")


def test_verl_ppo() -> None:
    # fsdp_workers.py: param_offload moves the parameters out between the phases; update_actor loads them back before it trains
    run = run_of(
        "actor_rollout_ref:\n  model: {path: a/b, lora_rank: 32}\n  actor:\n    strategy: fsdp2\n"
        "    ppo_micro_batch_size_per_gpu: 4\n"
        "    use_kl_loss: true\n    fsdp_config: {param_offload: true}\n  rollout: {n: 8, gpu_memory_utilization: 0.6}\n"
        "algorithm: {adv_estimator: grpo}\ndata: {max_prompt_length: 512, max_response_length: 1024}\n"
        "trainer: {n_gpus_per_node: 4}\n"
    )
    keys = ("objective", "batch.sequence_length", "batch.micro_batch_size", "parallel.strategy", "parallel.offload_params",
            "adapter.r",
            "reference_model", "generation.gpu_memory_utilization", "parallel.gpus", "model.dtype")  # fmt: skip
    assert values(run, *keys) == ("grpo", 1536, 4, "fsdp2", "none", 32, "none", 0.6, 4, "float32")


def test_accelerate_counts_processes_over_all_machines() -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: {}\n"
        "mixed_precision: 'no'\n"
    )
    assert values(run_of(text.format(16)), "parallel.gpus", "parallel.nodes", "parallel.strategy") == (8, 2, "ddp")
    assert not run_of(text.format(-1)).facts["parallel.gpus"].known


def test_accelerate_compiles_block_by_block() -> None:
    """`use_regional_compilation` targets "repeated blocks of the same class" (accelerate 1.15 `utils/dataclasses.py`)."""
    lines = "distributed_type: 'NO'\nmixed_precision: bf16\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"
    assert run_of(lines).value("compile.scope") is None
    run = run_of(lines + "  dynamo_use_regional_compilation: true\n")
    assert (run.value("compile"), run.value("compile.scope")) == (True, "blocks")


def test_accelerate_refuses_an_unknown_key() -> None:
    run = run_of("distributed_type: FSDP\nnum_processes: 2\nmixed_precison: bf16\n")
    assert problems(run) == [("unknown-key", 3)]


def test_deepspeed_refuses_two_half_precisions() -> None:
    run = run_of('{"zero_optimization": {"stage": 2},\n "fp16": {"enabled": true},\n "bf16": {"enabled": true}}', "ds.json")
    assert problems(run) == [("fp16-and-bf16-both", 2)]


def test_deepspeed_refuses_an_unknown_zero_key_and_json_comments() -> None:
    text = '{\n "zero_optimization": {"stage": 2,\n  "offload_optimiser": {"device": "cpu"}} // x\n}'
    assert problems(run_of(text, "ds.json")) == [("invalid-json", 3), ("unknown-key", 3)]


# ---- TRL YAML and run.yaml ----


def test_trl_yaml_knows_the_trainer_by_the_keys_that_only_it_has() -> None:
    base = "model_name_or_path: a/b\ntorch_dtype: bfloat16\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\nbf16: true\n"
    assert run_of(base + "max_length: 512\n").value("objective") == "causal_lm"
    assert values(run_of(base + "beta: 0.1\n"), "objective", "reference_model") == ("dpo", "copy")
    assert values(run_of(base + "num_generations: 8\n"), "objective", "batch.num_generations") == ("grpo", 8)
    assert run_of(base + "gradient_checkpointing: true\n").value("framework.name") == "transformers"


def test_a_pinned_library_version_decides_the_defaults(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("trl==0.11.4\ntransformers==4.46.3\n")
    text = "model_name_or_path: a/b\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\nmax_seq_length: 512\n"
    file = tmp_path / "c.yaml"
    file.write_text(text)
    run = run_of(text, str(file), Project.around(str(file)))
    assert values(run, "checkpointing.enabled", "precision", "optimizer.name") == (False, "fp32", "adamw_torch")
    assert "trl 0.11.4" in run.facts["batch.packing"].origin[-1].note
    assert run.value("framework.versions") == {"transformers": "4.46.3", "trl": "0.11.4"}
    assert "transformers 4.46.3 (requirements.txt:2)" in run.facts["framework.versions"].origin[0].note


def test_run_yaml_dotted_and_nested() -> None:
    run = run_of(
        "schema: memlint.run.v1\nmodel.id: a/b\nbatch:\n  micro_batch_size: 4\n  sequence_length: '2_048'\n"
        "optimizer.name: adamw_8bit\n"
    )
    keys = ("model.id", "batch.micro_batch_size", "batch.sequence_length", "optimizer.name")
    assert values(run, *keys) == ("a/b", 4, 2048, "adamw_bnb_8bit")


def test_run_yaml_keeps_mappings_whole_and_reports_what_is_wrong() -> None:
    run = run_of(
        "schema: memlint.run.v1\nmodel:\n  config: {model_type: llama, hidden_size: 64}\n"
        "batch.micro_batchsize: 2\nprecision: bf17\n"
        "adapter.target_modules: [q_proj]\nadapter.method:\n"
    )
    assert run.value("model.config") == {"model_type": "llama", "hidden_size": 64}
    assert run.value("adapter.target_modules") == ["q_proj"]
    assert "adapter.method" not in run.facts
    assert problems(run) == [("unknown-key", 4), ("wrong-value", 5)]


# ---- what a launch adds to a configuration ----


def facts_of(dialect: str, **native: Any) -> dict[str, Any]:
    facts = by_name(dialect).facts({name.replace("__", "."): fixed(value) for name, value in native.items()})
    return {key: fact.value for key, fact in facts.items()}


def test_the_command_of_swift_decides_the_objective_and_the_backend() -> None:
    assert facts_of("ms_swift", model="a/b", swift_command="rlhf")["objective"] == "dpo"
    assert facts_of("ms_swift", model="a/b", swift_command="rlhf", rlhf_type="rm")["objective"] == "reward"
    assert facts_of("ms_swift", model="a/b", swift_command="sft", swift_backend="megatron")["parallel.strategy"] == "megatron"
    assert facts_of("ms_swift", model="a/b", swift_command="sft")["objective"] == "causal_lm"


def test_the_command_of_trl_decides_the_trainer() -> None:
    facts = facts_of("trl_yaml", model_name_or_path="a/b", learning_rate=1e-5, trl_command="RewardConfig")
    assert facts["objective"] == "reward"


@pytest.mark.parametrize(
    ("command", "method", "checkpointing"),
    [("finetune", "lora", False), ("finetune_full", "none", False), ("finetune_adapter_v2", "llama_adapter_v2", False)],
)
def test_the_command_of_litgpt_decides_the_adapter(command: str, method: str, checkpointing: bool) -> None:
    facts = facts_of("litgpt", checkpoint_dir="checkpoints/a/b", litgpt_command=command)
    assert (facts["adapter.method"], facts["checkpointing.enabled"]) == (method, checkpointing)


def test_the_recipe_of_torchtune_decides_the_strategy() -> None:
    one = facts_of("torchtune", batch_size=1, recipe="lora_finetune_single_device")
    assert (one["parallel.strategy"], one["parallel.gpus"]) == ("none", 1)
    assert facts_of("torchtune", batch_size=1, recipe="full_finetune_distributed")["parallel.strategy"] == "fsdp2"


# ---- open-instruct, fsdp_qlora, Ludwig, OpenRLHF ----


def test_open_instruct_qlora() -> None:
    run = run_of(
        "model_name_or_path: a/b\nuse_qlora: true\nuse_lora: true\nlora_rank: 64\nlora_dropout: 0.1\nmax_seq_length: 4096\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 16\nwith_tracking: true\ncheckpointing_steps: epoch\n"
    )
    keys = (
        "framework.name",
        "adapter.method",
        "adapter.r",
        "adapter.alpha",
        "quantization.method",
        "optimizer.name",
        "objective",
    )
    assert values(run, *keys) == ("open_instruct", "lora", 64, 16, "bnb_4bit", "paged_adamw_32bit", "causal_lm")
    assert "parallel.gpus" not in run.facts


def test_fsdp_qlora_flags() -> None:
    facts = facts_of("fsdp_qlora", train_type="qlora", precision="bf16_buffers_autocast", sharding_strategy="ddp", world_size="2")
    assert facts["quantization.storage_dtype"] == facts["model.dtype"] == "bfloat16"
    assert (facts["precision"], facts["parallel.fsdp_sharding"], facts["parallel.gpus"]) == ("bf16-mixed", "no_shard", 2)
    default = facts_of("fsdp_qlora")
    assert (default["adapter.r"], default["parallel.offload_params"], default["batch.sequence_length"]) == (64, "cpu", 512)


def test_ludwig() -> None:
    run = run_of(
        "model_type: llm\nbase_model: a/b\ninput_features: []\nadapter: {type: lora, r: 16}\nquantization: {bits: 4}\n"
        "trainer: {type: finetune, batch_size: 2, gradient_accumulation_steps: 8}\n"
        "preprocessing: {global_max_sequence_length: 512}\n"
    )
    keys = ("adapter.r", "adapter.alpha", "quantization.method", "quantization.compute_dtype", "batch.micro_batch_size",
            "batch.gradient_accumulation_steps", "batch.sequence_length")  # fmt: skip
    assert values(run, *keys) == (16, 32, "bnb_4bit", "float16", 2, 8, 512)


def test_openrlhf_flags() -> None:
    facts = facts_of("openrlhf", openrlhf_command="train_dpo", ds__zero_stage="3", ds__lora__rank=0, train__micro_batch_size="1")
    keys = ("objective", "reference_model", "parallel.strategy", "batch.micro_batch_size", "model.dtype", "adapter.method")
    assert tuple(facts[key] for key in keys) == ("dpo", "copy", "zero3", 1, "bfloat16", "none")


def test_verl_from_a_megatron_trainer() -> None:
    run = run_of(
        "defaults:\n  - ppo_megatron_trainer\n  - _self_\nactor_rollout_ref:\n  model: {path: a/b}\ntrainer: {nnodes: 2}\n"
    )
    assert values(run, "parallel.strategy", "parallel.nodes", "parallel.tensor") == ("megatron", 2, 1)


def test_a_slip_of_the_pen_in_a_trl_yaml() -> None:
    base = "model_name_or_path: a/b\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\nmax_length: 512\n"
    (problem,) = run_of(base + "gradient_checkpoint: true\nmax_seq_len: 12\nmy_own: 1\n").problems
    assert (problem.name, problem.span.line) == ("unknown-key", 5)
    assert "'gradient_checkpointing'" in problem.message


def test_nothing_is_concluded_from_a_run_yaml() -> None:
    run = run_of("schema: memlint.run.v1\nprecision: bf16-mixed\nmodel.dtype: float32\nparallel.strategy: zero2\n")
    assert values(run, "model.dtype", "optimizer.master_weights") == ("float32", None)
