"""torchtune recipe YAML. Read at torchtune bd2a0fc7c3: `recipes/*.py`, `torchtune/models/*/_model_builders.py`, `modules/loss`.

Components are named by `_component_`. The model builder's name carries the size, the adapter (`lora_`) and the quantization
(`qlora_`); parameters, gradients and optimizer states are all in `dtype`, without autocast.
"""

from __future__ import annotations

import re

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, rename, text
from memlint.dialects.fsdp import nested
from memlint.facts import Fact, Problem, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "torchtune"
FRAGMENT = False
INTERPOLATES = True
NOTE = "torchtune bd2a0fc7c3 default"

_DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
_MODES = {"bfloat16": "bf16-true", "float32": "fp32", "float16": "fp16-true"}
_OPTIMIZERS = {
    "torch.optim.Adam": "adam", "torch.optim.SGD": "sgd", "torch.optim.Adagrad": "adagrad",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW32bit": "paged_adamw_32bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit", "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.PagedAdam": "paged_adamw_32bit", "bitsandbytes.optim.AdamW": "adamw_torch",
    "torchao.optim.AdamW8bit": "adamw_torch_8bit", "torchao.optim.AdamW4bit": "adamw_torch_4bit",
    "torchao.prototype.low_bit_optim.AdamW8bit": "adamw_torch_8bit",
    "torchao.prototype.low_bit_optim.AdamW4bit": "adamw_torch_4bit",
    "torchao.prototype.low_bit_optim.CPUOffloadOptimizer": "adamw_torch_cpu_offload",
    "torchao.optim.CPUOffloadOptimizer": "adamw_torch_cpu_offload",
}  # fmt: skip
_CHUNKED = ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss", "ForwardKLWithChunkedOutputLoss", "LinearGRPOLoss")
_OBJECTIVES = (("DPOLoss", "dpo"), ("RSOLoss", "dpo"), ("SimPOLoss", "simpo"), ("PPOLoss", "ppo"), ("GRPO", "grpo"),
               ("CrossEntropy", "causal_lm"), ("CEWithChunkedOutput", "causal_lm"))  # fmt: skip
_SIZED = {"llama2": "llama", "llama3": "llama", "llama3_1": "llama", "mistral": "mistral", "qwen2": "qwen2"}
"""Builders that take the network's sizes -> the Hugging Face model type of the same layers."""
_SIZES = {"vocab_size": "vocab_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
          "num_kv_heads": "num_key_value_heads", "embed_dim": "hidden_size", "max_seq_len": "max_position_embeddings",
          "intermediate_dim": "intermediate_size", "head_dim": "head_dim"}  # fmt: skip
_MODULES = {"output_proj": "o_proj"}
_MLP = ["gate_proj", "down_proj", "up_proj"]


def recognise(document: Document) -> str | None:
    """Components of torchtune, a batch size and something that trains (an optimizer)."""
    builder = next(
        (b for b in (document.text_at(f"{key}._component_") for key in ("model", "policy_model", "base_model")) if b), None
    )
    blocks = ("", "training.")  # the asynchronous GRPO recipe has a block for its training workers
    trains = (document.at(f"{block}batch_size") is not None and document.at(f"{block}optimizer._component_") for block in blocks)
    if builder is None or not any(trains):
        return None
    parts = [document.text_at(f"{key}._component_") or "" for key in ("tokenizer", "checkpointer", "dataset", "loss")]
    if not builder.startswith("torchtune.") and not any(part.startswith("torchtune.") for part in parts):
        return None
    return f"model._component_ is {builder}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a recipe configuration. A launch adds the recipe's name as `recipe` (`lora_finetune_distributed`)."""
    context = context or Context()
    native = _workers(_renamed(native))
    role = "policy_model" if "policy_model._component_" in native else "model"
    builder = given(native, f"{role}._component_") or unknown("the model builder is not named")

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    held = derive(_DTYPES.__getitem__, given(native, "dtype") or unknown("dtype is not given"))
    result: Facts = {
        "framework.name": fixed(NAME),
        "model.id": _model(native, builder),
        "model.dtype": held,
        "precision": derive(_MODES.__getitem__, held),
        "batch.gradient_accumulation_steps": setting("gradient_accumulation_steps", 1, integer),
        "batch.packing": _packing(native),
        "batch.sequence_length": _length(native),
        "checkpointing.enabled": setting("enable_activation_checkpointing", False, boolean),
        "checkpointing.offload": setting("enable_activation_offloading", False, boolean),
        "checkpointing.use_reentrant": default(False, NOTE),
        "optimizer.name": _optimizer(native),
        "optimizer.in_backward": setting("optimizer_in_bwd", False, boolean),
    }
    result |= rename(native, {
        "batch.micro_batch_size": ("batch_size", integer),
        "compile": ("compile", lambda value: any(value.values()) if isinstance(value, dict) else boolean(value)),
        "parallel.tensor": ("tensor_parallel_dim", integer),
        "parallel.context": ("context_parallel_dim", integer),
        "parallel.context_comm": ("context_parallel_rotate_method", text),
        "batch.image_size": (f"{role}.image_size", integer),
        "batch.num_generations": ("grpo_samples", integer),
        "batch.completion_length": ("max_generated_tokens", integer),
        "vision.trainable": (f"{role}.encoder_trainable", _trains),
        "vision.llm_trainable": (f"{role}.decoder_trainable", _trains),
        "vision.aligner_trainable": (f"{role}.fusion_trainable", _trains),
    })  # fmt: skip
    result |= (
        _sizes(native, role, builder)
        | _selective(native)
        | _adapter(native, role, builder, held)
        | _loss(native)
        | _evaluation(native)
        | _parallel(native, context.path)
    )
    if "model.config" in result and result["model.id"].value == derive(_component, builder).value:
        del result["model.id"]  # only the name of a builder that makes any size
    result["reference_model"] = _reference(native, result["adapter.method"], derive(_component, builder))
    context.note(_problems(native, result))
    return result


def _renamed(native: Native) -> Native:
    """An override that gives a component a text names it: `optimizer=torch.optim.SGD` (`_merge_yaml_and_cli_args`)."""
    names = [name for name, fact in native.items() if isinstance(fact.value, str) and f"{name}._component_" in native]
    return {**native, **{f"{name}._component_": native[name] for name in names}}


def _workers(native: Native) -> Native:
    """The asynchronous GRPO recipe (`recipes/dev/async_grpo_full_finetune_distributed.py`): what its training workers are told.

    Generation and the reference policy are on GPUs of other workers.
    """
    if "training.optimizer._component_" not in native:
        return native
    moved = {"grpo_samples": "inference.group_size", "max_generated_tokens": "inference.max_generated_tokens",
             "data_parallel_shard_dim": "orchestration.num_training_workers"}  # fmt: skip
    named = {name: native[source] for name, source in moved.items() if source in native}
    return {**native, "dtype": default("bf16", NOTE), **nested(native, "training"), **named}


def _selective(native: Native) -> Facts:
    """`ac_mode: selective` with `op` or a number, only where whole layers are not recomputed (`full_finetune_distributed.py`)."""
    mode, option, whole = (given(native, name) for name in ("ac_mode", "ac_option", "enable_activation_checkpointing"))
    if mode is None or option is None or mode.value != "selective" or (whole is not None and whole.value is True):
        return {}
    result: Facts = {"checkpointing.enabled": mode.with_value(True)}
    if option.value == "op":
        return {**result, "checkpointing.mode": option.with_value("selective_op")}
    return {
        **result,
        "checkpointing.mode": mode.with_value("selective_layer"),
        "checkpointing.layer_frequency": derive(integer, option),
    }


def _trains(value: Any) -> bool:
    """`full`, `lora` or `frozen`; a boolean in older recipes."""
    return value not in ("frozen", False, "False", "false")


def _model(native: Native, builder: Fact) -> Fact:
    """The checkpoint's directory, where it is named after the hub id (`/tmp/Meta-Llama-3.1-8B-Instruct`), else the builder."""
    folder = given(native, "checkpointer.checkpoint_dir")
    if folder is not None and folder.known and isinstance(folder.value, str):
        path = folder.value.rstrip("/")
        if re.search(r"\d+(?:\.\d+)?[bm](?![a-z])", path.rsplit("/", 1)[-1], re.IGNORECASE):
            return folder.with_value(path)
    return derive(_component, builder)


def _sizes(native: Native, role: str, builder: Fact) -> Facts:
    """A network whose sizes are the builder's arguments, in Hugging Face's words (`torchtune/models/*/_component_builders.py`)."""
    kind = derive(lambda path: _SIZED[_component(path)], builder)
    names = [name for name in _SIZES if given(native, f"{role}.{name}") is not None]
    if not kind.known or not {"vocab_size", "num_layers", "embed_dim"} <= set(names):
        return {}

    def config(family: str, *values: Any) -> dict[str, Any]:
        stated = dict(zip(names, values, strict=True))
        width = integer(stated["embed_dim"])
        own = {_SIZES[name]: integer(value) for name, value in stated.items()}
        # `scale_hidden_dim_for_mlp`: two thirds of four times the width, up to a multiple of 256
        own.setdefault("intermediate_size", -(-4 * int(2 * width / 3) // 256) * 256)
        return {"model_type": family, "tie_word_embeddings": False, **own}

    facts_ = [given(native, f"{role}.{name}") or builder for name in names]
    return {"model.config": derive(config, kind, *facts_)}


def _component(path: Any) -> str:
    """The model in a builder's name: `torchtune.models.llama3_1.qlora_llama3_1_8b` -> `llama3_1_8b`."""
    return re.sub(r"^(?:q?lora|dora)_", "", text(path).rsplit(".", 1)[-1])


def _packing(native: Native) -> Fact:
    fact = given(native, "dataset.packed", "dataset.0.packed")
    return derive(boolean, fact) if fact is not None else default(False, NOTE)


def _length(native: Native) -> Fact:
    fact = given(native, "tokenizer.max_seq_len")
    if fact is not None:
        return derive(integer, fact)
    own = given(native, "dataset.max_seq_len", "dataset.0.max_seq_len")
    if own is not None:
        return derive(integer, own)
    null = native.get("tokenizer.max_seq_len")
    return unknown("tokenizer.max_seq_len is not set: samples are not truncated", null.origin[0].span if null else None)


def _optimizer(native: Native) -> Fact:
    component = given(native, "optimizer._component_") or unknown("the optimizer is not named")
    fused = given(native, "optimizer.fused") or default(None, NOTE)

    def name(path: Any, kernel: Any) -> str:
        if path == "torch.optim.AdamW":
            return "adamw_torch_fused" if kernel is not None and boolean(kernel) else "adamw_torch"
        return _OPTIMIZERS.get(path) or text(path).rsplit(".", 1)[-1].lower()

    return derive(name, component, fused)


def _adapter(native: Native, role: str, builder: Fact, held: Fact) -> Facts:
    """The adapter and the quantization that the builder's name and arguments choose."""
    short = derive(lambda path: text(path).rsplit(".", 1)[-1], builder)
    dora = given(native, f"{role}.use_dora") or default(False, NOTE)
    quantized = given(native, f"{role}.quantize_base") or default(False, NOTE)

    def has_adapter(name: str) -> bool:
        return name.startswith(("lora_", "qlora_"))

    method = derive(lambda name, on: ("dora" if boolean(on) else "lora") if has_adapter(name) else "none", short, dora)
    nf4 = derive(lambda name, on: "torchao_nf4" if name.startswith("qlora_") or (has_adapter(name) and boolean(on)) else "none",
                 short, quantized)  # fmt: skip
    plain = method.value == "none"
    result: Facts = {
        "adapter.method": default("none", NOTE) if plain else method,
        "quantization.method": default("none", NOTE) if nf4.value == "none" else nf4,
    }
    if nf4.value == "torchao_nf4":
        result |= {"quantization.quant_type": default("nf4", NOTE), "quantization.double_quant": default(True, NOTE),
                   "quantization.skip_modules": default(["lm_head", "embed_tokens"], NOTE)}  # fmt: skip
    if plain:
        return result
    for key, name, otherwise, convert in (
        ("adapter.r", "lora_rank", 8, integer), ("adapter.alpha", "lora_alpha", 16, number), ("adapter.dropout",
        "lora_dropout", 0.0, number),
    ):  # fmt: skip
        fact = given(native, f"{role}.{name}")
        result[key] = derive(convert, fact) if fact is not None else default(otherwise, NOTE)
    attention = given(native, f"{role}.lora_attn_modules")
    off = default(False, NOTE)
    if attention is not None:
        mlp, head = given(native, f"{role}.apply_lora_to_mlp") or off, given(native, f"{role}.apply_lora_to_output") or off
        result["adapter.target_modules"] = derive(_targets, attention, mlp, head)
    result["adapter.dtype"] = default(held.value, f"{NOTE}: adapters are in dtype") if held.known else held
    return result


def _targets(attention: Any, mlp: Any, head: Any) -> list[str]:
    """The adapted modules under their Hugging Face names."""
    named = [_MODULES.get(str(module), str(module)) for module in attention]
    return named + (_MLP if boolean(mlp) else []) + (["lm_head"] if boolean(head) else [])


def _loss(native: Native) -> Facts:
    loss = given(native, "loss._component_")
    if loss is None or not loss.known:
        return {}
    name = str(loss.value).rsplit(".", 1)[-1]
    result: Facts = {}
    objective = next((value for part, value in _OBJECTIVES if part in name), None)
    if given(native, "kd_loss._component_", "teacher_model._component_") is not None:
        objective = "knowledge_distillation"
    if objective is not None:
        result["objective"] = derive(lambda _: objective, loss)
    if name in _CHUNKED:
        chunks = given(native, "loss.num_output_chunks")
        result |= {
            "loss.logits": derive(lambda _: "chunked", loss),
            "loss.num_chunks": derive(integer, chunks) if chunks is not None else default(8, NOTE),
            "loss.keeps_chunks": default(True, NOTE),
        }
    elif "CrossEntropyLoss" in name:
        result["loss.logits"] = derive(lambda _: "full", loss)
    return result


def _reference(native: Native, adapter: Fact, model: Fact) -> Fact:
    """A DPO recipe without adapter loads a second model from `ref_checkpointer`; so do PPO and GRPO. A distilled model has a
    teacher beside it, which counts as a copy only if it is of the same size (`recipes/knowledge_distillation_*.py`)."""
    teacher = given(native, "teacher_model._component_")
    if teacher is not None:
        named = derive(_component, teacher)
        if named.known and model.known and named.value == model.value:
            return teacher.with_value("copy")
        return unknown(
            f"the teacher {named.value} is another model beside this one", teacher.origin[0].span if teacher.origin else None
        )
    for name in ("ref_checkpointer._component_", "ref_policy_checkpointer._component_", "reward_checkpointer._component_"):
        fact = given(native, name)
        if fact is not None:
            return derive(lambda _: "copy", fact)
    return default("none", NOTE)


def _evaluation(native: Native) -> Facts:
    every = given(native, "run_val_every_n_steps")
    result: Facts = {"eval.enabled": derive(lambda steps: integer(steps) > 0, every) if every else default(False, NOTE)}
    size = given(native, "batch_size_val")
    if size is not None:
        result["eval.batch_size"] = derive(integer, size)
    return result


def _parallel(native: Native, path: str) -> Facts:
    """Distributed recipes shard with FSDP2; the recipe is named on the command line, so only certain keys tell."""
    result: Facts = {}
    offload = given(native, "fsdp_cpu_offload", "fsdp.cpu_offload")
    if offload is not None:
        for key in ("parallel.offload_params", "parallel.offload_optimizer"):
            result[key] = derive(lambda value: "cpu" if boolean(value) else "none", offload)
    shard = given(native, "data_parallel_shard_dim")
    if shard is not None and shard.value != -1:
        result["parallel.data_shard"] = derive(integer, shard)
    recipe = given(native, "recipe")
    name = str(recipe.value) if recipe is not None and recipe.known else path
    if "distributed" in name and recipe is not None:
        result["parallel.strategy"] = derive(lambda _: "fsdp2", recipe)
    elif "single_device" in name:
        result |= {
            "parallel.gpus": default(1, "a single-device recipe"),
            "parallel.strategy": default("none", "a single-device recipe"),
        }
    elif any(given(native, name) is not None for name in ("tensor_parallel_dim", "data_parallel_shard_dim", "fsdp_cpu_offload")):
        result["parallel.strategy"] = default("fsdp2", NOTE)
    return result


def _problems(native: Native, result: Facts) -> tuple[Problem, ...]:
    """What the recipes refuse (`recipes/full_finetune_*.py`)."""
    found: list[Problem] = []
    in_backward, steps = given(native, "optimizer_in_bwd"), result["batch.gradient_accumulation_steps"]
    span = in_backward.origin[0].span if in_backward is not None and in_backward.origin else None
    if span is not None and result["optimizer.in_backward"].value is True and steps.known and steps.value > 1:
        message = "optimizer_in_bwd cannot accumulate gradients: set gradient_accumulation_steps: 1"
        found.append(Problem("optimizer-in-backward-with-accumulation", message, span))
    offload = given(native, "enable_activation_offloading")
    if offload is not None and offload.value is True and result["checkpointing.enabled"].value is False and offload.origin:
        where = offload.origin[0].span
        if where is not None:
            message = "enable_activation_offloading needs enable_activation_checkpointing: True"
            found.append(Problem("offload-without-checkpointing", message, where))
    return tuple(found)


_WRITE = {
    "batch.micro_batch_size": "batch_size", "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "batch.sequence_length": "tokenizer.max_seq_len", "batch.packing": "dataset.packed",
    "checkpointing.enabled": "enable_activation_checkpointing", "checkpointing.offload": "enable_activation_offloading",
    "optimizer.in_backward": "optimizer_in_bwd", "compile": "compile", "adapter.r": "model.lora_rank",
    "adapter.alpha": "model.lora_alpha", "adapter.dropout": "model.lora_dropout", "parallel.tensor": "tensor_parallel_dim",
    "eval.batch_size": "batch_size_val",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where a recipe cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key in ("precision", "model.dtype"):
        dtype = {"bf16-true": "bf16", "bfloat16": "bf16", "fp32": "fp32", "float32": "fp32"}.get(str(value))
        return [("dtype", dtype)] if dtype else None
    if key == "loss.logits" and value == "chunked":
        return [("loss._component_", "torchtune.modules.loss.LinearCrossEntropyLoss")]
    if key == "optimizer.name":
        if value in ("adamw_torch", "adamw_torch_fused"):
            return [("optimizer._component_", "torch.optim.AdamW"), ("optimizer.fused", value == "adamw_torch_fused")]
        component = {canonical: name for name, canonical in reversed(_OPTIMIZERS.items())}.get(str(value))
        return [("optimizer._component_", component), ("optimizer.fused", None)] if component else None
    if key == "quantization.method" and value == "torchao_nf4":
        return [("model.quantize_base", True)]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("fsdp_cpu_offload", value == "cpu")]
    return None
