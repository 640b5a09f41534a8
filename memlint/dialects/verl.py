"""verl (Hydra): the SFT trainer's YAML and the PPO/GRPO trainer's YAML or dotted overrides.

Read at verl b178a3cd56: `verl/trainer/config/*.yaml`, `verl/trainer/fsdp_sft_trainer.py`, `verl/workers/fsdp_workers.py`.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document
from memlint.typed import Any

NAME = "verl"
FRAGMENT = False
INTERPOLATES = True
NOTE = "verl b178a3cd56 default"

_STRATEGIES = {"fsdp": "fsdp1", "fsdp2": "fsdp2", "megatron": "megatron"}


def recognise(document: Document) -> str | None:
    """The blocks of verl's trainers: `actor_rollout_ref`, or `data` with a micro batch beside `model` and `trainer`."""
    keys = document.keys
    if "actor_rollout_ref" in keys and keys & {"data", "trainer", "algorithm"}:
        return "has actor_rollout_ref"
    sft = any(
        document.at(f"data.{name}") is not None for name in ("micro_batch_size_per_gpu", "micro_batch_size", "train_batch_size")
    )
    model = any(document.at(f"model.{name}") is not None for name in ("partial_pretrain", "path"))
    if sft and model and document.at("trainer") is not None:
        return "has data.train_batch_size, model and trainer"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts; the actor is the model that is trained in the PPO trainer."""
    if any(name.startswith("actor_rollout_ref") for name in native):
        return _rl(native)
    return _sft(native)


def _setting(native: Native, otherwise: Any, convert: Any, *names_: str) -> Fact:
    fact = given(native, *names_)
    return derive(convert, fact) if fact is not None else default(otherwise, NOTE)


def _world(native: Native) -> Facts:
    return {
        "framework.name": fixed(NAME),
        "parallel.gpus": _setting(native, 8, integer, "trainer.n_gpus_per_node"),
        "parallel.nodes": _setting(native, 1, integer, "trainer.nnodes"),
        "quantization.method": default("none", NOTE),
        "optimizer.name": default("adamw_torch", NOTE),
        "precision": default("bf16-mixed", f"{NOTE}: FSDP mixed precision"),
    }


def _adapter(native: Native, prefix: str) -> Facts:
    rank = given(native, f"{prefix}.lora_rank")
    result: Facts = {"adapter.method": derive(lambda r: "lora" if integer(r) > 0 else "none", rank or default(0, NOTE))}
    if result["adapter.method"].value == "lora" and rank is not None:
        result |= {
            "adapter.r": derive(integer, rank),
            "adapter.alpha": _setting(native, 16, number, f"{prefix}.lora_alpha"),
            "adapter.target_modules": _setting(native, "all-linear", names, f"{prefix}.target_modules"),
            "adapter.dtype": default("float32", NOTE),
        }
    return result


def _sft(native: Native) -> Facts:
    micro = given(native, "data.micro_batch_size_per_gpu", "data.micro_batch_size")
    total = given(native, "data.train_batch_size")
    result = _world(native) | _adapter(native, "model")
    model = given(native, "model.partial_pretrain", "model.path")
    if model is not None:
        result["model.id"] = derive(text, model)
    offload = given(native, "model.fsdp_config.offload_params") or given(native, "model.fsdp_config.cpu_offload")
    both = [given(native, f"model.fsdp_config.{name}") or default(False, NOTE) for name in ("offload_params", "cpu_offload")]
    result |= {
        "batch.micro_batch_size": derive(integer, micro) if micro else unknown("data.micro_batch_size_per_gpu is not set"),
        "batch.sequence_length": _setting(native, 1024, integer, "data.max_length"),
        "model.dtype": _setting(native, "float32", lambda v: normalise("model.dtype", text(v)), "model.fsdp_config.model_dtype"),
        "checkpointing.enabled": _setting(native, True, boolean, "model.enable_gradient_checkpointing"),
        "checkpointing.use_reentrant": default(False, NOTE),
        "objective": default("causal_lm", "verl SFT trainer"),
        "reference_model": default("none", NOTE),
        "parallel.strategy": _setting(native, "fsdp2", _STRATEGIES.__getitem__, "model.strategy"),
        "parallel.offload_params": derive(lambda a, b: "cpu" if boolean(a) or boolean(b) else "none", *both),
        "parallel.context": _setting(native, 1, integer, "ulysses_sequence_parallel_size"),
        "loss.logits": _setting(native, "full", lambda on: "fused" if boolean(on) else "full", "model.use_liger"),
    }
    if offload is None:
        result["parallel.offload_params"] = default("none", NOTE)
    if total is not None and micro is not None:
        world = [result["parallel.gpus"], result["parallel.nodes"], result["parallel.context"]]
        result["batch.gradient_accumulation_steps"] = derive(
            lambda whole, size, gpus, nodes, ring: max(integer(whole) // (integer(size) * gpus * nodes // ring), 1),
            total,
            micro,
            *world,
        )
    return result


def _rl(native: Native) -> Facts:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    result = _world(native) | _adapter(native, "actor_rollout_ref.model")
    model = given(native, "actor_rollout_ref.model.path")
    if model is not None:
        result["model.id"] = derive(text, model)
    micro = given(native, f"{actor}.ppo_micro_batch_size_per_gpu")
    dynamic = given(native, f"{actor}.use_dynamic_bsz")
    prompt = _setting(native, 512, integer, "data.max_prompt_length")
    response = _setting(native, 512, integer, "data.max_response_length")
    estimator = given(native, "algorithm.adv_estimator") or default("gae", NOTE)
    strategy = _setting(native, "fsdp1", _STRATEGIES.__getitem__, f"{actor}.strategy")
    megatron = any(name.startswith(f"{actor}.megatron") for name in native) or _from_megatron(native)
    if megatron:
        strategy = default("megatron", NOTE)
        for key, name in (("tensor", "tensor"), ("pipeline", "pipeline"), ("context", "context"), ("expert", "expert")):
            degree = (
                f"{actor}.megatron.{name}_model_parallel_size" if name != "context" else f"{actor}.megatron.context_parallel_size"
            )
            result[f"parallel.{key}"] = _setting(native, 1, integer, degree)
    result |= {
        "batch.prompt_length": prompt,
        "batch.completion_length": response,
        "batch.sequence_length": derive(lambda a, b: a + b, prompt, response),
        "batch.micro_batch_size": derive(integer, micro) if micro else unknown("the micro batch is sized by tokens, or not set"),
        "batch.num_generations": _setting(native, 1, integer, f"{rollout}.n"),
        "model.dtype": _setting(
            native, "float32", lambda v: normalise("model.dtype", text(v)), f"{actor}.fsdp_config.model_dtype"
        ),
        "checkpointing.enabled": _setting(native, True, boolean, "actor_rollout_ref.model.enable_gradient_checkpointing"),
        "checkpointing.use_reentrant": default(False, NOTE),
        "checkpointing.offload": _setting(native, False, boolean, "actor_rollout_ref.model.enable_activation_offload"),
        "objective": derive(lambda name: "ppo" if name == "gae" else str(name), estimator),
        "reference_model": _reference(native),
        "parallel.strategy": strategy,
        "parallel.offload_params": _setting(native, "none", _offload, f"{actor}.fsdp_config.param_offload"),
        "parallel.offload_optimizer": _setting(native, "none", _offload, f"{actor}.fsdp_config.optimizer_offload"),
        **({} if megatron else {"parallel.context": _setting(native, 1, integer, f"{actor}.ulysses_sequence_parallel_size")}),
        "generation.vllm": default("colocate", NOTE),
        "generation.gpu_memory_utilization": _setting(native, 0.5, number, f"{rollout}.gpu_memory_utilization"),
        "generation.tensor": _setting(native, 2, integer, f"{rollout}.tensor_model_parallel_size"),
        "generation.sleep": _setting(native, True, boolean, f"{rollout}.free_cache_engine"),
    }
    fused = given(native, "actor_rollout_ref.model.use_fused_kernels")
    if fused is not None:
        result["loss.logits"] = derive(lambda on: "fused" if boolean(on) else "full", fused)
    whole = given(native, "actor_rollout_ref.model.use_remove_padding")
    if whole is not None:
        result["batch.padding_free"] = derive(boolean, whole)
    if dynamic is not None and dynamic.value is True:
        tokens = _setting(native, 16384, integer, f"{actor}.ppo_max_token_len_per_gpu")
        result["batch.sequence_length"] = tokens
        result["batch.micro_batch_size"] = derive(lambda _: 1, dynamic)
        result["batch.packing"] = derive(boolean, dynamic)
    return result


def _from_megatron(native: Native) -> bool:
    """Whether the `defaults:` list starts from a Megatron trainer."""
    return any(
        fact.known and isinstance(fact.value, str) and "megatron" in fact.value
        for name, fact in native.items()
        if name.startswith("defaults.")
    )


def _offload(value: Any) -> str:
    return "cpu" if boolean(value) else "none"


def _reference(native: Native) -> Fact:
    """A reference policy is loaded for a KL loss or a KL reward, and is the base model under LoRA."""
    off = default(False, NOTE)
    loss, reward = given(native, "actor_rollout_ref.actor.use_kl_loss") or off, given(native, "algorithm.use_kl_in_reward") or off
    rank = given(native, "actor_rollout_ref.model.lora_rank") or default(0, NOTE)
    return derive(lambda a, b, r: "copy" if (boolean(a) or boolean(b)) and not integer(r) else "none", loss, reward, rank)


_SFT = {
    "batch.micro_batch_size": "data.micro_batch_size_per_gpu", "batch.sequence_length": "data.max_length",
    "checkpointing.enabled": "model.enable_gradient_checkpointing", "adapter.r": "model.lora_rank",
    "parallel.gpus": "trainer.n_gpus_per_node", "parallel.nodes": "trainer.nnodes",
    "parallel.context": "ulysses_sequence_parallel_size",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> key of the SFT trainer's YAML; None where it cannot say it."""
    if key in _SFT:
        return [(_SFT[key], value)]
    if key == "model.dtype":
        return [("model.fsdp_config.model_dtype", {"float32": "fp32", "bfloat16": "bf16"}.get(str(value), value))]
    if key == "loss.logits" and value in ("fused", "full"):
        return [("model.use_liger", value == "fused")]
    if key == "parallel.offload_params" and value in ("cpu", "none"):
        return [("model.fsdp_config.offload_params", value == "cpu")]
    return None
