"""The argument dialects that Python and configuration files share, against the libraries' sources at the versions named."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.dialects import accelerate, bitsandbytes, deepspeed, from_pretrained, hf_arguments, peft, trl
from memlint.dialects.settle import settle
from memlint.facts import Fact, TrainingRun, choices, fixed, unknown
from memlint.memory.setup import setup_of
from memlint.models import lookup
from memlint.source import Span
from memlint.versions import Pin, Versions


def native(**arguments: Any) -> dict[str, Fact]:
    return {name: fixed(value, Span("a.py", line)) for line, (name, value) in enumerate(arguments.items(), 1)}


def versions(**pins: str) -> Versions:
    return Versions({name: Pin(version, "test") for name, version in pins.items()})


def values(facts: dict[str, Fact], *keys: str) -> tuple[Any, ...]:
    return tuple(facts[key].value for key in keys)


# ---- flips of the rule book's section 0 ----


@pytest.mark.parametrize(
    ("trl_version", "bf16", "checkpointing"),
    [("0.18.0", "fp32", False), ("0.19.0", "bf16-mixed", False), ("0.21.0", "bf16-mixed", False), ("0.22.0", "bf16-mixed", True)],
)
def test_trl_turned_bf16_and_then_checkpointing_on(trl_version: str, bf16: str, checkpointing: bool) -> None:
    facts = trl.trl_arguments("SFTConfig", {}, versions(trl=trl_version, transformers="4.57.6"))
    assert values(facts, "precision", "checkpointing.enabled") == (bf16, checkpointing)


def test_transformers_5_loads_the_checkpoints_dtype_and_4_float32() -> None:
    load = from_pretrained.load_facts
    assert load("AutoModelForCausalLM", {}, versions(transformers="4.57.6"))["model.dtype"].value == "float32"
    left = load("AutoModelForCausalLM", {}, versions(transformers="5.0.0"))["model.dtype"]
    assert (left.known, left.reason) == (False, from_pretrained.CHECKPOINT_DTYPE)


@pytest.mark.parametrize(("version", "value"), [("0.25.1", None), ("0.26.0", None), ("0.27.0", "float32"), ("1.16.0", "float32")])
def test_a_model_given_to_a_trl_trainer_by_name(version: str, value: str | None) -> None:
    assert trl.string_model_dtype({}, versions(trl=version, transformers="5.0.0")).value == value
    assert trl.string_model_dtype(native(model_init_kwargs={"dtype": "bfloat16"})).value == "bfloat16"


@pytest.mark.parametrize(
    ("pins", "value"),
    [
        ({"transformers": "4.57.6"}, True),
        ({"transformers": "5.0.0"}, False),
    ],
)
def test_reentrant_checkpointing_was_the_default_before_transformers_5(pins: dict[str, str], value: bool) -> None:
    facts = hf_arguments.training_arguments(native(gradient_checkpointing=True), versions(**pins))
    assert facts["checkpointing.use_reentrant"].value is value


def test_the_fused_optimizer_needs_torch_2_8() -> None:
    default = hf_arguments.training_arguments
    assert default({}, versions(transformers="4.57.6", torch="2.8.0"))["optimizer.name"].value == "adamw_torch_fused"
    assert default({}, versions(transformers="4.57.6", torch="2.6.0"))["optimizer.name"].value == "adamw_torch"
    assert default({}, versions(transformers="4.46.3"))["optimizer.name"].value == "adamw_torch"


@pytest.mark.parametrize(
    ("name", "version", "logits"),
    [("SFTConfig", "1.6.0", "full"), ("SFTConfig", "1.7.0", "chunked"), ("DPOConfig", "1.14.0", "full"), ("DPOConfig",
     "1.15.0", "chunked"),
     ("RewardConfig", "1.16.0", "full")],
)  # fmt: skip
def test_trl_chunks_its_loss_since(name: str, version: str, logits: str) -> None:
    assert trl.trl_arguments(name, {}, versions(trl=version))["loss.logits"].value == logits


def test_an_explicit_nll_was_full_until_1_15() -> None:
    explicit = native(loss_type="nll")
    assert trl.trl_arguments("SFTConfig", explicit, versions(trl="1.12.0"))["loss.logits"].value == "full"
    assert trl.trl_arguments("SFTConfig", explicit, versions(trl="1.16.0"))["loss.logits"].value == "chunked"


@pytest.mark.parametrize(("version", "reference"), [("0.18.0", "copy"), ("0.19.0", "none")])
def test_grpo_dropped_its_reference_model(version: str, reference: str) -> None:
    assert trl.reference_model("GRPOConfig", {}, None, versions(trl=version)).value == reference


@pytest.mark.parametrize(("version", "reference"), [("1.1.0", "copy"), ("1.2.0", "precomputed")])
def test_precomputed_log_probabilities_free_the_reference_since_1_2(version: str, reference: str) -> None:
    got = trl.reference_model("DPOConfig", native(precompute_ref_log_probs=True), None, versions(trl=version))
    assert got.value == reference


def test_with_peft_the_base_model_is_the_reference() -> None:
    assert trl.reference_model("DPOConfig", {}, fixed("lora")).value == "none"
    assert trl.reference_model("DPOConfig", {}, fixed("lora"), passed=fixed("model")).value == "copy"
    assert trl.reference_model("SFTConfig", {}, None).value == "none"


# ---- training arguments ----


def test_precision_of_a_card_dependent_pair_stays_a_pair() -> None:
    bf16, fp16 = choices([True, False], decided_by="gpu.bf16"), choices([False, True], decided_by="gpu.bf16")
    precision = hf_arguments.training_arguments({"bf16": bf16, "fp16": fp16})["precision"]
    assert (precision.choices, precision.decided_by) == (("bf16-mixed", "fp16-mixed"), "gpu.bf16")


def test_fp16_with_bf16_is_a_problem_at_both_places() -> None:
    (problem,) = hf_arguments.problems(native(fp16=True, bf16=True))
    assert (problem.name, problem.span.line, problem.related[0].line) == ("fp16-and-bf16-both", 1, 2)
    assert hf_arguments.problems(native(fp16=False, bf16=True)) == ()


def test_checkpointing_options() -> None:
    facts = hf_arguments.training_arguments(
        native(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
    )
    assert values(facts, "checkpointing.enabled", "checkpointing.use_reentrant") == (True, True)
    new = hf_arguments.training_arguments(
        native(activation_checkpointing=True, activation_checkpointing_kwargs={"offload": True, "every_n_layers": 2})
    )
    keys = ("checkpointing.enabled", "checkpointing.offload", "checkpointing.mode", "checkpointing.layer_frequency")
    assert values(new, *keys) == (True, True, "selective_layer", 2)
    opaque = hf_arguments.training_arguments(
        {"gradient_checkpointing": fixed(True), "gradient_checkpointing_kwargs": unknown("x")}
    )
    assert not opaque["checkpointing.use_reentrant"].known


def test_evaluation_is_on_when_its_strategy_is_not_no() -> None:
    assert hf_arguments.training_arguments(native(do_eval=True))["eval.enabled"].value is False
    on = hf_arguments.training_arguments(native(eval_strategy="steps"))
    assert values(on, "eval.enabled", "eval.batch_size") == (True, 8)
    old = hf_arguments.training_arguments(native(evaluation_strategy="epoch"), versions(transformers="4.30.2"))
    assert old["eval.enabled"].value is True


def test_fsdp_of_the_trainer_old_and_new() -> None:
    config = {"fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}
    old = hf_arguments.training_arguments(
        native(fsdp="full_shard auto_wrap offload", fsdp_config=config), versions(transformers="4.57.6")
    )
    keys = ("parallel.strategy", "parallel.offload_params", "parallel.wrap_policy", "parallel.fsdp_sharding")
    assert values(old, *keys) == ("fsdp1", "cpu", "transformer", "full_shard")
    new = hf_arguments.training_arguments(native(fsdp=True, fsdp_config={"reshard_after_forward": False}))
    assert values(new, *keys) == ("fsdp2", "none", "transformer", "shard_grad_op")
    sized = hf_arguments.training_arguments(
        native(fsdp="shard_grad_op auto_wrap", fsdp_config={"min_num_params": 1000, "version": 1})
    )
    # 5.24.0 `_process_fsdp_args`: `auto_wrap` is no option any more, and the strategy reaches accelerate's FSDP 1 as
    # `reshard_after_forward`, which its `sharding_strategy` (FULL_SHARD unless given) wins over
    assert values(sized, *keys) == ("fsdp1", "none", "transformer", "full_shard")
    older = hf_arguments.training_arguments(
        native(fsdp="shard_grad_op auto_wrap", fsdp_config={"min_num_params": 1000}), versions(transformers="4.57.6")
    )
    assert values(older, *keys) == ("fsdp1", "none", "size", "shard_grad_op")
    # accelerate's word is not the Trainer's: its `cpu_offload` stays off
    other = hf_arguments.training_arguments(native(fsdp=True, fsdp_config={"offload_params": True}))
    assert values(other, *keys)[:2] == ("fsdp2", "none")
    assert "parallel.strategy" not in hf_arguments.training_arguments(native(fsdp=""))


def test_unknown_arguments_leave_only_their_own_keys_unknown() -> None:
    facts = hf_arguments.training_arguments({"per_device_train_batch_size": unknown("from the command line")})
    assert not facts["batch.micro_batch_size"].known
    assert facts["batch.gradient_accumulation_steps"].value == 1


# ---- TRL ----


@pytest.mark.parametrize(
    ("name", "arguments", "length"),
    [
        ("SFTConfig", {}, 1024),
        ("SFTConfig", {"max_length": 4096}, 4096),
        ("SFTConfig", {"max_seq_length": 4096}, 4096),
        ("SFTConfig", {"max_length": None}, None),
        ("DPOConfig", {"max_length": 1536}, 1536),
        ("GRPOConfig", {}, None),
        ("RewardConfig", {}, 1024),
    ],
)
def test_sequence_length(name: str, arguments: dict[str, Any], length: int | None) -> None:
    assert trl.trl_arguments(name, native(**arguments))["batch.sequence_length"].value == length


def test_prompt_and_completion_lengths_of_an_older_grpo_add_up() -> None:
    facts = trl.trl_arguments("GRPOConfig", {}, versions(trl="0.17.0"))
    assert values(facts, "batch.prompt_length", "batch.completion_length", "batch.sequence_length") == (512, 256, 768)


def test_rollouts() -> None:
    facts = trl.trl_arguments("GRPOConfig", native(use_vllm=True, num_generations=4))
    keys = ("generation.vllm", "generation.gpu_memory_utilization", "batch.num_generations", "objective")
    assert values(facts, *keys) == ("colocate", 0.3, 4, "grpo")
    assert trl.trl_arguments("GRPOConfig", native(use_vllm=True), versions(trl="0.24.0"))["generation.vllm"].value == "server"


def test_model_config_makes_an_adapter_and_a_quantization() -> None:
    facts = trl.model_config(native(model_name_or_path="a/b", use_peft=True, load_in_4bit=True, dtype="bfloat16", lora_r=4))
    keys = ("model.id", "model.dtype", "adapter.method", "adapter.r", "adapter.alpha", "adapter.dropout", "quantization.method",
            "quantization.quant_type", "quantization.compute_dtype", "quantization.double_quant", "adapter.dtype")  # fmt: skip
    assert values(facts, *keys) == ("a/b", "bfloat16", "lora", 4, 32, 0.05, "bnb_4bit", "nf4", "bfloat16", False, "bfloat16")
    assert values(trl.model_config({}), "adapter.method", "quantization.method", "model.dtype") == ("none", "none", "float32")
    assert not trl.model_config(native(torch_dtype=None))["model.dtype"].known


# ---- PEFT and quantization ----


def test_lora_defaults_and_variants() -> None:
    facts = peft.adapter_facts("LoraConfig", {})
    assert values(facts, "adapter.method", "adapter.r", "adapter.alpha", "adapter.dropout", "adapter.dtype") == (
        "lora",
        8,
        8,
        0.0,
        "float32",
    )
    assert not facts["adapter.target_modules"].known
    dora = peft.adapter_facts("LoraConfig", native(use_dora=True, target_modules="all-linear", r=16, modules_to_save=["lm_head"]))
    keys = ("adapter.method", "adapter.target_modules", "adapter.modules_to_save")
    assert values(dora, *keys) == ("dora", "all-linear", ["lm_head"])
    assert peft.adapter_facts("IA3Config", native(target_modules=["k_proj"]))["adapter.method"].value == "ia3"
    prompt = peft.adapter_facts("PromptTuningConfig", native(num_virtual_tokens=20))
    assert values(prompt, "adapter.method", "adapter.prompt_length") == ("prompt_tuning", 20)
    assert (
        peft.adapter_facts("LoraConfig", native(target_modules=r".*\.(q|v)_proj"))["adapter.target_modules"].value
        == r".*\.(q|v)_proj"
    )
    assert peft.adapter_facts("LoraConfig", native(use_rslora=True))["adapter.config"].value == {"use_rslora": True}
    # what is switched off, or zero so that another field decides, is said as well
    switched = native(use_cayley_neumann=False, oft_block_size=0, r=8)
    assert peft.adapter_facts("OFTConfig", switched)["adapter.config"].value == {"use_cayley_neumann": False, "oft_block_size": 0}
    assert peft.adapter_facts("PeanutConfig", native(depth=2))["adapter.r"].value == 32


def test_bitsandbytes_defaults_are_fp4_in_float32_without_double_quantization() -> None:
    facts = bitsandbytes.quantization_facts("BitsAndBytesConfig", native(load_in_4bit=True))
    keys = ("quantization.method", "quantization.quant_type", "quantization.compute_dtype", "quantization.double_quant")
    assert values(facts, *keys) == ("bnb_4bit", "fp4", "float32", False)
    assert bitsandbytes.quantization_facts("BitsAndBytesConfig", native(load_in_8bit=True)) == {
        "quantization.method": fixed("bnb_8bit", Span("a.py", 1))
    }
    assert bitsandbytes.quantization_facts("BitsAndBytesConfig", {})["quantization.method"].value == "none"
    gptq = bitsandbytes.quantization_facts("GPTQConfig", native(bits=4, group_size=64))
    assert values(gptq, "quantization.method", "quantization.bits", "quantization.group_size") == ("gptq", 4, 64)
    assert not bitsandbytes.quantization_facts("SomeConfig", {})["quantization.method"].known


def test_from_pretrained() -> None:
    facts = from_pretrained.load_facts(
        "AutoModelForSequenceClassification",
        native(
            pretrained_model_name_or_path="a/b",
            torch_dtype="torch.float16",
            attn_implementation="flash_attention_2",
            num_labels=3,
        ),
    )
    keys = ("model.id", "model.dtype", "model.attention", "model.num_labels", "objective")
    assert values(facts, *keys) == ("a/b", "float16", "flash_attention_2", 3, "sequence_classification")
    assert "objective" not in from_pretrained.load_facts("AutoModel", {})
    assert not from_pretrained.load_facts("AutoModelForCausalLM", native(dtype="auto"))["model.dtype"].known
    assert (
        from_pretrained.load_facts("AutoModelForCausalLM", native(load_in_8bit=True))["quantization.method"].value == "bnb_8bit"
    )


# ---- accelerate and DeepSpeed ----


def test_accelerate_plugins() -> None:
    zero = accelerate.plugin_facts("DeepSpeedPlugin", native(zero_stage=3, offload_optimizer_device="cpu"))
    keys = ("parallel.strategy", "parallel.offload_optimizer", "parallel.offload_params")
    assert values(zero, *keys) == ("zero3", "cpu", "none")
    fsdp = accelerate.plugin_facts("FullyShardedDataParallelPlugin", native(fsdp_version=2, cpu_offload=True))
    assert values(fsdp, "parallel.strategy", "parallel.offload_params", "parallel.wrap_policy") == ("fsdp2", "cpu", "none")
    assert accelerate.accelerator_facts(native(mixed_precision="fp16"))["precision"].value == "fp16-mixed"


def test_launcher_flags_are_read_like_the_yaml() -> None:
    flags = native(
        use_fsdp=True, fsdp_offload_params="true", fsdp_version="2", mixed_precision="bf16", num_processes="8", num_machines=2
    )
    keys = ("parallel.strategy", "parallel.offload_params", "precision", "parallel.gpus", "parallel.nodes")
    assert values(accelerate.launcher_facts(flags), *keys) == ("fsdp2", "cpu", "bf16-mixed", 4, 2)
    stage = accelerate.launcher_facts(native(use_deepspeed=True, zero_stage=3, offload_param_device="cpu", num_processes=2))
    assert values(stage, "parallel.strategy", "parallel.offload_params") == ("zero3", "cpu")


def test_deepspeed_defaults_and_buckets() -> None:
    facts = deepspeed.engine_facts({"zero_optimization.stage": fixed(3), "bf16.enabled": fixed(True)})
    keys = (
        "parallel.strategy",
        "precision",
        "parallel.reduce_bucket_size",
        "parallel.overlap_comm",
        "parallel.param_persistence_threshold",
    )
    assert values(facts, *keys) == ("zero3", "bf16-mixed", 500_000_000, True, 100_000)
    two = deepspeed.engine_facts({"zero_optimization.stage": fixed(2), "zero_optimization.reduce_bucket_size": fixed("5e7")})
    assert values(two, "parallel.reduce_bucket_size", "parallel.overlap_comm") == (50_000_000, False)
    assert deepspeed.engine_facts({"zero_optimization": fixed(True)})["parallel.strategy"].value == "zero1"


def test_deepspeed_parameter_cache() -> None:
    """DeepSpeed 0.19 `runtime/zero/config.py`: `max_reuse_distance`, alias `stage3_max_reuse_distance`, 1e9; read at stage 3 only."""
    stage3 = {"zero_optimization.stage": fixed(3), "zero_optimization.stage3_max_live_parameters": fixed(1e8)}
    keys = ("parallel.max_live_parameters", "parallel.max_reuse_distance")
    assert values(deepspeed.engine_facts(stage3), *keys) == (100_000_000, 1_000_000_000)
    for name in ("stage3_max_reuse_distance", "max_reuse_distance"):
        given = deepspeed.engine_facts({**stage3, f"zero_optimization.{name}": fixed(0)})
        assert values(given, *keys) == (100_000_000, 0)
    assert "parallel.max_reuse_distance" not in deepspeed.engine_facts({"zero_optimization.stage": fixed(2)})


def test_auto_is_left_to_the_arguments_and_a_number_must_match_them() -> None:
    training = hf_arguments.training_arguments(native(per_device_train_batch_size=4, bf16=True))
    auto = {"zero_optimization.stage": fixed(2), "train_micro_batch_size_per_gpu": fixed("auto"), "bf16.enabled": fixed("auto")}
    added, problems = deepspeed.plugin_facts(auto, training, Versions())
    assert "batch.micro_batch_size" not in added
    assert problems == ()
    other = {**auto, "train_micro_batch_size_per_gpu": fixed(8, Span("ds.json", 3))}
    _, (problem,) = deepspeed.plugin_facts(other, training, Versions())
    assert (problem.name, problem.span.path, problem.related[0].path) == ("deepspeed-arguments-mismatch", "ds.json", "a.py")
    assert "8" in problem.message
    assert "4" in problem.message


# ---- settling ----


@pytest.mark.parametrize(
    ("precision", "dtype", "expected"),
    [
        ("fp32", "bfloat16", "bf16-true"),
        ("fp32", "float16", "fp16-true"),
        ("fp32", "float32", "fp32"),
        ("bf16-mixed", "float32", "bf16-mixed"),
    ],
)
def test_without_autocast_the_weights_decide_the_precision(precision: str, dtype: str, expected: str) -> None:
    assert settle({"precision": fixed(precision), "model.dtype": fixed(dtype)})["precision"].value == expected


def test_without_autocast_and_without_a_known_dtype_the_precision_is_unknown() -> None:
    assert not settle({"precision": fixed("fp32"), "model.dtype": unknown("x")})["precision"].known


def test_deepspeed_casts_the_weights_and_keeps_a_master_copy() -> None:
    facts = settle({"precision": fixed("bf16-mixed"), "model.dtype": fixed("float32"), "parallel.strategy": fixed("zero2")})
    assert values(facts, "model.dtype", "optimizer.master_weights") == ("bfloat16", True)


def test_a_quantized_checkpoint_says_so_in_its_name() -> None:
    assert settle({"model.id": fixed("TheBloke/Llama-2-7B-GPTQ")})["quantization.method"].value == "gptq"
    kept = settle({"model.id": fixed("x/y-AWQ"), "quantization.method": fixed("bnb_8bit")})
    assert kept["quantization.method"].value == "bnb_8bit"
    assert "quantization.method" not in settle({"model.id": fixed("meta-llama/Llama-3-8B")})


def test_a_reduce_bucket_that_is_left_to_the_trainer_is_the_square_of_the_width() -> None:
    """transformers 5.24.0 integrations/deepspeed.py: `fill_only("zero_optimization.reduce_bucket_size", hidden_size * hidden_size)`."""
    facts = deepspeed.engine_facts({"zero_optimization.stage": fixed(2), "zero_optimization.reduce_bucket_size": fixed("auto")})
    assert "parallel.reduce_bucket_size" not in facts
    architecture = lookup("meta-llama/Llama-3.1-8B").architecture
    assert architecture is not None
    facts |= {"parallel.gpus": fixed(8), "precision": fixed("bf16-mixed"), "batch.sequence_length": fixed(512),
              "batch.micro_batch_size": fixed(1), "model.dtype": fixed("bfloat16")}  # fmt: skip
    run = TrainingRun(path="c.json", span=Span("c.json", 1, 1, 1, 1), facts=facts)
    assert setup_of(run, architecture, None, []).sharding.reduce_bucket == 4096 * 4096
