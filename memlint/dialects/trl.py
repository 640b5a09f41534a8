"""TRL configuration classes (`SFTConfig`, `DPOConfig`, ... and `ModelConfig`) to canonical facts, by version.

Read in trl 0.7.11 ... 1.16.0 (`trainer/*_config.py`, `trainer/*_trainer.py`, `trainer/utils.py`). Literal defaults are data
(`memlint/defaults/trl.json`).
"""

from __future__ import annotations

from memlint.defaults import MISSING
from memlint.dialects import hf_arguments
from memlint.dialects.bitsandbytes import quantization_facts
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.dialects.from_pretrained import load_dtype
from memlint.dialects.hf_arguments import Arguments, expanded, training_arguments
from memlint.dialects.peft import adapter_facts
from memlint.facts import Fact, default, unknown
from memlint.facts.keys import normalise
from memlint.typed import Any
from memlint.versions import Versions

OBJECTIVES = {
    "SFTConfig": "causal_lm", "GKDConfig": "gkd", "DPOConfig": "dpo", "KTOConfig": "kto", "ORPOConfig": "orpo",
    "CPOConfig": "cpo", "BCOConfig": "bco", "RewardConfig": "reward", "PRMConfig": "prm", "GRPOConfig": "grpo",
    "RLOOConfig": "rloo", "PPOConfig": "ppo", "PPOv2Config": "ppo", "OnlineDPOConfig": "online_dpo", "XPOConfig": "xpo",
    "NashMDConfig": "nash_md",
}  # fmt: skip
"""Configuration class -> objective."""

TRAINERS = {name.replace("Config", "Trainer"): name for name in OBJECTIVES}
"""Trainer class -> its configuration class."""

_CHUNKED_SINCE = {
    "SFTConfig": "1.7", "DPOConfig": "1.15", "KTOConfig": "1.15", "GRPOConfig": "1.15", "RLOOConfig": "1.15",
}  # fmt: skip
"""Since when the trainer applies its LM head in chunks (SFT: `chunked_nll` became the default; 1.15: for every loss)."""

_ROLLOUT = {"GRPOConfig", "RLOOConfig"}
_PAIRWISE = {"DPOConfig", "KTOConfig", "BCOConfig"}


def trl_arguments(class_name: str, native: Native, versions: Versions | None = None) -> Facts:
    """Canonical facts of a TRL configuration: those of `TrainingArguments` and TRL's own.

    `native`: argument name -> fact, nested arguments dotted or whole. `reference_model` needs the adapter and the trainer's own
    `ref_model`: see `reference_model`. `model.dtype` of a model given as text: see `string_model_dtype`.
    """
    versions = versions or Versions()
    arguments = Arguments(expanded(native), versions, "trl", class_name)
    facts = training_arguments(native, versions, library="trl", class_name=class_name)
    facts["objective"] = default(OBJECTIVES.get(class_name, "causal_lm"), f"trl.{class_name}")
    facts |= _lengths(arguments) | _logits(arguments, facts) | _rollouts(arguments)
    if class_name in ("SFTConfig", "GKDConfig"):
        facts["batch.packing"] = derive(boolean, arguments("packing"))
        free = arguments.given("padding_free")
        if free is not None:
            facts["batch.padding_free"] = derive(boolean, free)
    return facts


def within(window: Fact) -> Facts:
    """The length of rollouts whose prompts have no limit of their own, but a context window of vLLM."""
    return {
        "batch.sequence_length": window,
        "batch.sequence_length_is_cap": default(True, "vLLM's context window: prompts and completions are shorter"),
    }


def _lengths(arguments: Arguments) -> Facts:
    """`max_length` (`max_seq_length` before 0.16 and, in configurations that were never renamed, still)."""
    name = arguments.class_name
    if name in _ROLLOUT or name in ("OnlineDPOConfig", "XPOConfig", "NashMDConfig", "PPOConfig", "PPOv2Config"):
        facts: Facts = {}
        prompt, completion = arguments("max_prompt_length"), arguments("max_completion_length", "max_new_tokens")
        if name.startswith("PPO"):
            completion = arguments("response_length")
        if prompt.known and prompt.value is not None:
            facts["batch.prompt_length"] = derive(integer, prompt)
        if completion.known and completion.value is not None:
            facts["batch.completion_length"] = derive(integer, completion)
        facts["batch.sequence_length"] = unknown("prompts have no length limit here")
        window = arguments.given("vllm_max_model_length", "vllm_max_model_len")
        if window is not None and window.value is not None and arguments("use_vllm").value is True:
            facts |= within(derive(integer, window))
        if "batch.prompt_length" in facts and "batch.completion_length" in facts:
            facts["batch.sequence_length"] = derive(
                lambda a, b: a + b, facts["batch.prompt_length"], facts["batch.completion_length"]
            )
        return facts
    null = next((n for n in ("max_length", "max_seq_length") if _is_null(arguments.native, n)), None)
    # `max_length` is no word of a version that has only `max_seq_length`
    older = arguments.default("max_length") is MISSING and arguments.default("max_seq_length") is not MISSING
    names = ("max_seq_length",) if older else ("max_length", "max_seq_length")
    length = arguments.given(*names)
    if length is None and null is not None:
        reason = f"{null} is null: samples are not truncated"
        never = derive(lambda _: False, arguments.native[null])
        return {"batch.sequence_length": unknown(reason, _span(arguments, null)), "batch.truncation": never}
    if length is None:
        length = next(
            (fact for fact in map(arguments, names) if fact.known and fact.value is not None),
            None,
        )
    if length is None:
        return {"batch.sequence_length": unknown("max_length is not set: samples are not truncated, or at the model's limit")}
    facts = {"batch.sequence_length": derive(integer, length)}
    packed = arguments.given("packing")
    if not (packed is not None and packed.known and packed.value is True):
        facts["batch.sequence_length_is_cap"] = default(True, "truncation length: samples are padded to their batch")
    return facts


def _is_null(native: Native, name: str) -> bool:
    fact = native.get(name)
    return fact is not None and fact.known and fact.value is None


def _span(arguments: Arguments, name: str) -> Any:
    fact = arguments.native[name]
    return fact.origin[0].span if fact.origin else None


def _logits(arguments: Arguments, facts: Facts) -> Facts:
    """Which losses never hold the whole logits: Liger's, and from 1.7/1.16 on TRL's own chunked LM head."""
    fused = facts["loss.logits"]
    if fused.value == "fused":
        return {}
    since = _CHUNKED_SINCE.get(arguments.class_name, "99")
    kind = arguments.given("loss_type")
    if kind is not None and kind.known and kind.value == "chunked_nll" and arguments.versions.at_least("trl", "1.4"):
        return {"loss.logits": derive(lambda _: "chunked", kind)}
    if not arguments.versions.at_least("trl", since):
        return {}
    if arguments.class_name == "SFTConfig" and kind is not None and not arguments.versions.at_least("trl", "1.15"):
        return {"loss.logits": derive(lambda value: "chunked" if value in (None, "chunked_nll") else "full", kind)}
    return {"loss.logits": derive(
        lambda value: "fused" if value == "fused" else "chunked", fused, note=f"{arguments.versions.note('trl')} fused LM head"
    )}  # fmt: skip


def _rollouts(arguments: Arguments) -> Facts:
    if arguments.class_name not in _ROLLOUT and arguments.class_name != "OnlineDPOConfig":
        return {}
    facts: Facts = {}
    if arguments.default("num_generations") is not MISSING:
        facts["batch.num_generations"] = derive(integer, arguments("num_generations"))
    gathers = arguments.given("ds3_gather_for_generation") or default(True, arguments.note())
    facts["generation.gathers_model"] = derive(boolean, gathers)
    on = arguments("use_vllm")
    mode = arguments("vllm_mode")
    if not on.known or on.value is not True:
        facts["generation.vllm"] = derive(lambda value: "none" if not value else "server", on)
        return facts | _own_rollouts(arguments)
    facts["generation.vllm"] = derive(lambda _, how: str(how), on, mode if mode.known else default("server", "trl"))
    if facts["generation.vllm"].value == "colocate":
        facts["generation.gpu_memory_utilization"] = derive(number, arguments("vllm_gpu_memory_utilization"))
        facts["generation.tensor"] = derive(integer, arguments("vllm_tensor_parallel_size"))
        facts["generation.sleep"] = derive(boolean, arguments("vllm_enable_sleep_mode"))
    return facts


def _own_rollouts(arguments: Arguments) -> Facts:
    """Without vLLM all sequences of `steps_per_generation` micro-batches are generated at once; by default those of one optimizer step
    (trl 1.16.0 `grpo_config.py`, `__post_init__`)."""
    if arguments.class_name not in _ROLLOUT or arguments.given("generation_batch_size") is not None:
        return {}
    batch = arguments("per_device_train_batch_size")
    if not arguments.versions.at_least("trl", "0.18"):  # each micro-batch was generated by itself
        return {"generation.batch_size": derive(integer, batch)}
    steps = arguments.given("steps_per_generation") or arguments("gradient_accumulation_steps")
    return {"generation.batch_size": derive(lambda size, count: integer(size) * integer(count), batch, steps)}


def reference_model(
    class_name: str, native: Native, adapter: Fact | None, versions: Versions | None = None, *, passed: Fact | None = None
) -> Fact:
    """Whether a second frozen model sits on the GPU.

    `adapter` is the fact of `adapter.method` (with PEFT the base model is the reference), `passed` the trainer's own `ref_model`
    argument if it is given. Precomputed log-probabilities free the reference from trl 1.2.0 on; before, it stayed.
    """
    versions = versions or Versions()
    arguments = Arguments(native, versions, "trl", class_name)
    note = arguments.note()
    peft = adapter if adapter is not None else default("none", note)
    explicit = passed is not None and not (passed.known and passed.value is None)
    if class_name in ("PPOConfig", "PPOv2Config", "OnlineDPOConfig", "XPOConfig", "NashMDConfig"):
        return derive(lambda method: "copy" if explicit or method == "none" else "none", peft)
    if class_name in _ROLLOUT:
        return derive(lambda beta, method: "copy" if float(beta or 0) and method == "none" else "none", arguments("beta"), peft)
    if class_name not in _PAIRWISE:
        return default("none", note)
    drops = versions.at_least("trl", "1.2")
    free = arguments.given("reference_free")

    def kind(precomputed: Any, method: Any) -> str:
        if free is not None and free.value is True:
            return "none"
        if precomputed is True and (drops or method != "none"):
            return "precomputed"
        return "copy" if explicit or method == "none" else "none"

    return derive(kind, arguments("precompute_ref_log_probs"), peft)


def string_model_dtype(native: Native, versions: Versions | None = None) -> Fact:
    """`model.dtype` of a model that a trainer loads from its name (`model_init_kwargs`): float32 since trl 0.27."""
    versions = versions or Versions()
    asked = given(expanded(native), "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype")
    if asked is not None:
        return load_dtype(asked, versions)
    if versions.at_least("trl", "0.27"):
        return default("float32", f"{versions.note('trl')} default for a model given by name")
    if versions.at_least("trl", "0.26"):
        return load_dtype(default("auto", "trl 0.26"), versions)
    return load_dtype(None, versions)


def model_config(native: Native, versions: Versions | None = None) -> Facts:
    """`trl.ModelConfig` with `get_peft_config` and `get_quantization_config`: `model.*`, `adapter.*`, `quantization.*`.

    Adapters of a quantized base are cast to bfloat16 by the trainers (`sft_trainer.py` 1.16.0), otherwise PEFT keeps float32.
    """
    versions = versions or Versions()
    arguments = Arguments(native, versions, "trl", "ModelConfig")
    facts: Facts = {}
    model = arguments.given("model_name_or_path")
    if model is not None:
        facts["model.id"] = derive(text, model)
    names = ("torch_dtype",) if arguments.default("dtype") is MISSING else ("dtype", "torch_dtype")
    asked = arguments.given(*names)
    if asked is None and not any(_is_null(native, name) for name in names):
        asked = next((f for f in map(arguments, names) if f.known and f.value is not None), None)
    facts["model.dtype"] = load_dtype(asked, versions)
    attention = arguments.given("attn_implementation")
    if attention is not None:
        facts["model.attention"] = derive(lambda value: normalise("model.attention", text(value)), attention)
    return facts | _model_adapter(arguments) | _model_quantization(arguments, asked)


def _model_adapter(arguments: Arguments) -> Facts:
    use = arguments("use_peft")
    method = derive(lambda on, dora: ("dora" if dora is True else "lora") if boolean(on) else "none", use,
                    arguments.given("use_dora") or default(False, arguments.note()))  # fmt: skip
    facts: Facts = {"adapter.method": method}
    if method.values == ("none",):
        return facts
    lora = {"r": arguments("lora_r"), "lora_alpha": arguments("lora_alpha"), "lora_dropout": arguments("lora_dropout")}
    for name, native_name in (("target_modules", "lora_target_modules"), ("modules_to_save", "lora_modules_to_save")):
        fact = arguments.given(native_name)
        if fact is not None:
            lora[name] = fact
    facts |= {key: fact for key, fact in adapter_facts("LoraConfig", lora, arguments.versions).items() if key != "adapter.method"}
    return facts


def _model_quantization(arguments: Arguments, dtype: Fact | None) -> Facts:
    native = {"load_in_4bit": arguments("load_in_4bit"), "load_in_8bit": arguments("load_in_8bit"),
              "bnb_4bit_quant_type": arguments("bnb_4bit_quant_type"),
              "bnb_4bit_use_double_quant": arguments("use_bnb_nested_quant")}  # fmt: skip
    if dtype is not None and dtype.value != "auto":
        native["bnb_4bit_compute_dtype"] = dtype
    storage = arguments.given("bnb_4bit_quant_storage")
    if storage is not None:
        native["bnb_4bit_quant_storage"] = storage
    facts = quantization_facts("BitsAndBytesConfig", native, arguments.versions)
    if facts["quantization.method"].value in ("bnb_4bit", "bnb_8bit"):
        facts["adapter.dtype"] = default("bfloat16", f"{arguments.versions.note('trl')} casts adapters of a quantized base")
    return facts


_WRITE = {
    "batch.sequence_length": "max_length", "batch.packing": "packing", "checkpointing.offload": "activation_offloading",
    "batch.completion_length": "max_completion_length", "batch.num_generations": "num_generations",
    "generation.gpu_memory_utilization": "vllm_gpu_memory_utilization", "generation.sleep": "vllm_enable_sleep_mode",
    "generation.gathers_model": "ds3_gather_for_generation",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of a TRL configuration class; None where it cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "reference_model" and value == "precomputed":
        return [("precompute_ref_log_probs", True)]
    return hf_arguments.write(key, value)


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """Names of older versions (`max_seq_length` before 0.16), and what the training arguments have."""
    older = [[("max_seq_length", value)]] if key == "batch.sequence_length" else []
    return older + hf_arguments.alternatives(key, value)
