"""ms-swift: YAML of `swift sft|pt|rlhf` (and `megatron sft`), and the same names as flags.

Read at ms-swift 3602360a56: `swift/arguments/*`, `swift/trainers/arguments.py`, `swift/config/*.json`,
`swift/megatron/arguments/megatron_args.py` (`ms_swift_megatron`).
"""

from __future__ import annotations

import math

from memlint.dialects import hf_arguments, megatron, ms_swift_megatron
from memlint.dialects.bitsandbytes import dtype
from memlint.dialects.context import Context
from memlint.dialects.deepspeed import linked, plugin_facts
from memlint.dialects.derive import Facts, Native, boolean, companions, derive, given, integer, names, number, rename, text
from memlint.dialects.from_pretrained import CHECKPOINT_DTYPE
from memlint.dialects.fsdp import with_linked
from memlint.facts import Fact, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document, flatten
from memlint.typed import Any

NAME = "ms_swift"
FRAGMENT = False
INTERPOLATES = False
NOTE = "ms-swift 3602360a56 default"
ENVIRONMENT = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM", "NPROC_PER_NODE", "NNODES")
"""What a launch takes from the environment; a file says it under `ENV`."""

_TUNERS = ("tuner_type", "train_type", "sft_type")
_TRAINING = frozenset({"dataset", "per_device_train_batch_size", "lora_rank", "max_length", "num_train_epochs", "learning_rate",
                       "torch_dtype", "gradient_accumulation_steps", "micro_batch_size", "output_dir",
                       "train_iters"})  # fmt: skip
_MEGATRON = frozenset({"micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "expert_model_parallel_size",
                       "pipeline_model_parallel_size", "recompute_granularity", "train_iters"})  # fmt: skip
_PRESETS = {
    "zero0": (0, None, None), "zero1": (1, None, None), "zero2": (2, None, None), "zero3": (3, None, None),
    "zero2_offload": (2, "cpu", None), "zero3_offload": (3, "cpu", "cpu"),
}  # fmt: skip
_BELOW_STAGE_3 = {"overlap_comm": False, "reduce_bucket_size": 200_000_000, "allgather_bucket_size": 200_000_000}
_STAGE_3 = {"overlap_comm": False, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto", "stage3_gather_16bit_weights_on_model_save": True}  # fmt: skip
"""What the presets `swift/config/zero*.json` say beside the stage and the offloading."""
_FSDP2 = {"reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "cpu_ram_efficient_loading": True,
          "state_dict_type": "SHARDED_STATE_DICT", "activation_checkpointing": True}  # fmt: skip
"""The preset `swift/config/fsdp2.json`."""
_QUANTIZERS = {
    "bnb": "bnb",
    "hqq": "hqq",
    "eetq": "eetq",
    "gptq": "gptq",
    "awq": "awq",
    "aqlm": "aqlm",
    "quanto": "int8",
    "fp8": "fp8",
}
_OBJECTIVES = {"rm": "reward"}


def recognise(document: Document) -> str | None:
    """A tuner type, or a text `model` with Swift's own training keys."""
    keys = document.keys
    training = sorted(keys & _TRAINING)
    tuner = next((name for name in _TUNERS if name in keys), None)
    if "base_model" in keys or "model_name_or_path" in keys or not training or document.at("train_dataset") is not None:
        return None
    has_model = document.text_at("model") is not None or document.text_at("model_type") is not None
    if tuner is not None and (has_model or len(training) >= 2):
        return f"has {tuner} and {training[0]}"
    if has_model and "dataset" in keys and keys & {"per_device_train_batch_size", "torch_dtype"} and "max_length" in keys:
        return "has model, dataset and max_length"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a Swift configuration (flags without `--`).

    A launch adds `swift_command` (`sft`, `pt`, `rlhf`) and `swift_backend` (`megatron`).
    """
    context = context or Context()
    native = with_linked(_fsdp_preset(_parsed(native), context), context)
    names_ = {name.partition(".")[0] for name in native}
    megatron = bool(names_ & _MEGATRON) and "per_device_train_batch_size" not in names_
    command, backend = given(native, "swift_command"), given(native, "swift_backend")
    if command is not None:
        megatron = backend is not None and backend.value == "megatron"
        if command.value == "rlhf":
            native = {"rlhf_type": default("dpo", NOTE), **native}
    result = _shared(native, megatron)
    if megatron:
        return result | ms_swift_megatron.facts(native, result["model.dtype"], result["adapter.method"])
    result |= _trainer(native, context)
    return result


def _parsed(native: Native) -> Native:
    """Arguments that are mappings may be written as JSON in a text (`json_parse_to_dict`)."""
    written = [(name, fact) for name, fact in native.items() if fact.known and str(fact.value).lstrip().startswith('{"')]
    if not written:
        return native
    import json  # rarely needed

    parsed: dict[str, Fact] = {}
    for name, fact in written:
        try:
            value = json.loads(str(fact.value))
        except ValueError:
            continue
        parsed |= {name: fact.with_value(value)} | {f"{name}.{key}": fact.with_value(inner) for key, inner in value.items()}
    return {**native, **parsed}


def _fsdp_preset(native: Native, context: Context) -> Native:
    """`fsdp` is the preset `fsdp2`, or a JSON file of the same form: the options beside `fsdp_config` (`sft_args.py`, `_init_fsdp`)."""
    named = given(native, "fsdp")
    if named is None or not isinstance(named.value, str):
        return native
    if named.value == "fsdp2":
        given_by_it = {f"fsdp_config.{name}": named.with_value(value) for name, value in _FSDP2.items()}
    elif (document := context.follow(named)) is not None:
        given_by_it = flatten(document)
    else:
        return native
    own = {"fsdp": named.with_value("full_shard auto_wrap"), "fsdp_config.fsdp_version": default(2, NOTE)}
    return {**native, **own, **given_by_it}


def _setting(native: Native, name: str, otherwise: Any, convert: Any) -> Fact:
    fact = given(native, name)
    return derive(convert, fact) if fact is not None else default(otherwise, NOTE)


def _shared(native: Native, megatron: bool) -> Facts:
    tuner = given(native, *_TUNERS) or default("full" if megatron else "lora", NOTE)
    method = derive(lambda name: "none" if name == "full" else normalise("adapter.method", text(name)), tuner)
    asked = given(native, "torch_dtype")
    held = derive(dtype, asked) if asked is not None else unknown(CHECKPOINT_DTYPE)
    length = given(native, "max_length")
    objective = given(native, "rlhf_type")
    result: Facts = {
        "framework.name": fixed(NAME),
        "adapter.method": method,
        "model.dtype": held,
        "precision": _precision(native, held),
        "batch.packing": _setting(native, "packing", False, boolean),
        "batch.sequence_length": derive(integer, length)
        if length
        else unknown("max_length is not set: the model's context length"),
        "objective": derive(lambda name: _OBJECTIVES.get(name, name), objective) if objective else default("causal_lm", NOTE),
        "vision.trainable": _setting(native, "freeze_vit", False, lambda value: not boolean(value)),
        "vision.aligner_trainable": _setting(native, "freeze_aligner", False, lambda value: not boolean(value)),
        "vision.llm_trainable": _setting(native, "freeze_llm", True, lambda value: not boolean(value)),
    }
    result |= rename(native, {
        "model.id": ("model", text),
        "batch.padding_free": ("padding_free", boolean),
        "parallel.context": ("sequence_parallel_size", integer),
        "model.attention": ("attn_impl", lambda value: normalise("model.attention", text(value))),
        "vision.max_pixels": ("max_pixels", integer),
    })  # fmt: skip
    pixels, tokens = given(native, "ENV.MAX_PIXELS"), given(native, "ENV.IMAGE_MAX_TOKEN_NUM")
    if pixels is not None:
        result["vision.max_pixels"] = derive(integer, pixels)
    elif tokens is not None and "model.id" in result:
        # A token is a square of 28 pixels, of 32 since Qwen3-VL (`patch_vision_process_by_env` of model/models/qwen.py).
        result["vision.max_pixels"] = derive(
            lambda number, model: integer(number) * (32 if "Qwen3" in model else 28) ** 2, tokens, result["model.id"]
        )
    processes = given(native, "ENV.NPROC_PER_NODE")
    if processes is not None:
        result["parallel.gpus"] = derive(integer, processes)
    if method.value not in ("none", None):
        result |= _adapter(native)
    return result | _quantization(native, held) | _rollouts(native, result["batch.sequence_length"])


def _rollouts(native: Native, prompt: Fact) -> Facts:
    """GRPO generates: `max_length` cuts the prompt, then come the completions (`rollout_mixin.py`, `args_mixin.py`)."""
    kind = given(native, "rlhf_type")
    if kind is None or kind.value != "grpo":
        return {}
    completion = given(native, "response_length", "max_new_tokens", "max_completion_length") or default(512, NOTE)
    on, mode = given(native, "use_vllm") or default(False, NOTE), given(native, "vllm_mode") or default("server", NOTE)
    result: Facts = {
        "batch.num_generations": _setting(native, "num_generations", 8, integer),
        "batch.completion_length": derive(integer, completion),
        "batch.prompt_length": prompt,
        "batch.sequence_length": derive(lambda head, tail: head + integer(tail), prompt, completion),
        "generation.vllm": derive(lambda used, how: text(how) if boolean(used) else "none", on, mode),
    }
    if result["generation.vllm"].value == "colocate":
        result |= {
            "generation.gpu_memory_utilization": _setting(native, "vllm_gpu_memory_utilization", 0.9, number),
            "generation.tensor": _setting(native, "vllm_tensor_parallel_size", 1, integer),
            "generation.sleep": _setting(native, "sleep_level", False, lambda level: integer(level) > 0),
        }
    return result


def _precision(native: Native, held: Fact) -> Fact:
    """Mixed precision in the model's dtype; float16 also for float32 weights (`_init_mixed_precision`)."""
    bf16, fp16 = given(native, "bf16"), given(native, "fp16")
    if bf16 is not None or fp16 is not None:
        off = default(False, NOTE)
        return derive(
            lambda a, b: "bf16-mixed" if boolean(a) else "fp16-mixed" if boolean(b) else "fp32", bf16 or off, fp16 or off
        )
    mode = derive(lambda value: "bf16-mixed" if value == "bfloat16" else "fp16-mixed", held)
    return default(mode.value, f"{NOTE}: follows torch_dtype") if mode.known else mode


def _adapter(native: Native) -> Facts:
    result: Facts = {}
    for key, name, otherwise, convert in (
        ("adapter.r", "lora_rank", 8, integer), ("adapter.alpha", "lora_alpha", 32, number), ("adapter.dropout",
        "lora_dropout", 0.05, number),
    ):  # fmt: skip
        result[key] = _setting(native, name, otherwise, convert)
    pattern, modules = given(native, "target_regex"), given(native, "target_modules")
    result["adapter.target_modules"] = (
        derive(text, pattern) if pattern is not None else derive(_targets, modules) if modules is not None
        else default("all-linear", NOTE)
    )  # fmt: skip
    saved = given(native, "modules_to_save")
    if saved is not None and saved.value:
        result["adapter.modules_to_save"] = derive(names, saved)
    held = given(native, "lora_dtype")
    result["adapter.dtype"] = (
        derive(dtype, held) if held is not None else default("float32", "peft 0.21.2: autocast_adapter_dtype")
    )
    return result


def _targets(value: Any) -> Any:
    listed = value.split() if isinstance(value, str) and " " in value else value
    return "all-linear" if listed in ("all-linear", ["all-linear"], "ALL", ["ALL"]) else names(listed)


def _quantization(native: Native, held: Fact) -> Facts:
    how, bits = given(native, "quant_method"), given(native, "quant_bits", "quantization_bit")
    if how is None and (bits is None or bits.value in (0, None)):
        return {"quantization.method": default("none", NOTE)}
    kind = how or default("bnb", NOTE)
    width = bits or default(4, NOTE)

    def method(name: Any, size: Any) -> str:
        return f"bnb_{integer(size)}bit" if name == "bnb" else _QUANTIZERS[name]

    result: Facts = {"quantization.method": derive(method, kind, width)}
    if result["quantization.method"].value == "bnb_4bit":
        compute, storage = given(native, "bnb_4bit_compute_dtype"), given(native, "bnb_4bit_quant_storage")
        result |= {
            "quantization.quant_type": _setting(native, "bnb_4bit_quant_type", "nf4", text),
            "quantization.double_quant": _setting(native, "bnb_4bit_use_double_quant", True, boolean),
            "quantization.compute_dtype": derive(dtype, compute) if compute else held,
            "quantization.storage_dtype": derive(dtype, storage) if storage else default("uint8", NOTE),
        }
    return result


def _trainer(native: Native, context: Context) -> Facts:
    """The HF Trainer with Swift's own defaults: batch size 1, checkpointing on, an effective batch of 16."""
    batch = _setting(native, "per_device_train_batch_size", 1, integer)
    own = {"gradient_checkpointing": default(True, NOTE)}
    result = hf_arguments.training_arguments({**own, **native}, context.versions)
    del result["precision"], result["loss.logits"], result["trainer.outputs_fp32"]
    steps, gpus = given(native, "gradient_accumulation_steps"), given(native, "ENV.NPROC_PER_NODE")
    if steps is None and gpus is None:
        accumulation = unknown("gradient_accumulation_steps is not set: 16 divided by batch size and world size")
    elif steps is None and gpus is not None:
        accumulation = derive(lambda size, world: max(1, math.ceil(16 / size / integer(world))), batch, gpus)
    else:
        accumulation = result["batch.gradient_accumulation_steps"]
    result |= {
        "batch.micro_batch_size": batch,
        "batch.gradient_accumulation_steps": accumulation,
        "eval.enabled": _evaluates(native),
        "reference_model": _reference(native),
    }
    reward = given(native, "reward_model")
    if reward is not None:
        result["model.companions"] = derive(companions, reward)
    kernels = given(native, "use_liger_kernel")
    if kernels is not None and kernels.value is True:
        result["loss.logits"] = derive(lambda _: "fused", kernels)
    size = given(native, "per_device_eval_batch_size")
    if size is None and result["eval.enabled"].value is not False:
        result["eval.batch_size"] = default(1, NOTE)
    return result | _deepspeed(native, result, context)


def _deepspeed(native: Native, result: Facts, context: Context) -> Facts:
    """`deepspeed` is a preset of `swift/config` or a path."""
    preset = given(native, "deepspeed")
    if preset is None or not preset.known or not isinstance(preset.value, str) or preset.value not in _PRESETS:
        return linked(preset, result, context)
    stage, optimizer, params = _PRESETS[preset.value]
    config = {"zero_optimization.stage": preset.with_value(stage)}
    for name, value in (_STAGE_3 if stage == 3 else _BELOW_STAGE_3).items():
        config[f"zero_optimization.{name}"] = preset.with_value(value)
    for what, device in (("optimizer", optimizer), ("param", params)):
        if device is not None:
            config[f"zero_optimization.offload_{what}.device"] = preset.with_value(device)
    added, _ = plugin_facts(config, result, context.versions)
    return added


def _evaluates(native: Native) -> Fact:
    strategy, ratio, data = given(native, "eval_strategy"), given(native, "split_dataset_ratio"), given(native, "val_dataset")
    if strategy is not None and strategy.value == "no":
        return derive(lambda _: False, strategy)
    if data is not None and data.value:
        return derive(lambda _: True, data)
    return derive(lambda share: number(share) > 0, ratio) if ratio is not None else default(False, NOTE)


def _reference(native: Native) -> Fact:
    """Full-parameter DPO, KTO, PPO and GRPO (unless beta is 0) load the model twice (`rlhf_args.py`)."""
    method = given(native, "rlhf_type")
    tuner = given(native, *_TUNERS) or default("lora", NOTE)
    beta = given(native, "beta") or default(None, NOTE)
    if method is None:
        return default("none", NOTE)

    def kind(name: Any, how: Any, penalty: Any) -> str:
        if name == "grpo" and penalty is not None and number(penalty) == 0:
            return "none"
        return "copy" if name in ("dpo", "kto", "ppo", "grpo") and how == "full" else "none"

    return derive(kind, method, tuner, beta)


_WRITE = {
    "batch.micro_batch_size": "per_device_train_batch_size", "batch.sequence_length": "max_length", "batch.packing": "packing",
    "batch.padding_free": "padding_free", "model.dtype": "torch_dtype", "model.attention": "attn_impl",
    "checkpointing.enabled": "gradient_checkpointing", "quantization.double_quant": "bnb_4bit_use_double_quant",
    "quantization.quant_type": "bnb_4bit_quant_type", "quantization.compute_dtype": "bnb_4bit_compute_dtype",
    "quantization.storage_dtype": "bnb_4bit_quant_storage", "adapter.r": "lora_rank", "adapter.alpha": "lora_alpha",
    "adapter.dropout": "lora_dropout", "adapter.target_modules": "target_modules", "vision.max_pixels": "max_pixels",
    "batch.num_generations": "num_generations", "batch.completion_length": "max_completion_length",
    "generation.gpu_memory_utilization": "vllm_gpu_memory_utilization", "generation.tensor": "vllm_tensor_parallel_size",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where Swift cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("quant_method", "bnb"), ("quant_bits", 4 if value == "bnb_4bit" else 8)]
    if key == "adapter.method" and value in ("lora", "none"):
        return [("tuner_type", "lora" if value == "lora" else "full")]
    if key == "parallel.strategy" and value in _PRESETS:
        return [("deepspeed", value)]
    return hf_arguments.write(key, value)


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """The settings of the Megatron backend, and what the training arguments have."""
    own = megatron.write(key, value)
    if key in ("parallel.offload_optimizer", "parallel.offload_params") and value == "cpu":
        return [[("deepspeed", "zero2_offload")], [("deepspeed", "zero3_offload")], *hf_arguments.alternatives(key, value)]
    return ([own] if own else []) + hf_arguments.alternatives(key, value)
