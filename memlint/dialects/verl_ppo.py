"""verl's PPO/GRPO trainer (Hydra): its YAML, or its dotted overrides.

Read at verl b178a3cd56: `verl/trainer/config/**.yaml`, `verl/workers/fsdp_workers.py`. `param_offload` and `optimizer_offload` clear
the GPU for the other phases and bring everything back to train the actor; only FSDP2's own offload keeps it on the host. The
reference policy always has that.
"""

from __future__ import annotations

from typing import Any

from memlint.dialects import megatron, verl
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number
from memlint.dialects.fsdp import nested
from memlint.facts import Fact, default, unknown
from memlint.read.document import Document

NAME = "verl_ppo"
FRAGMENT = False
INTERPOLATES = True

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))


def recognise(document: Document) -> str | None:
    """`actor_rollout_ref` with another block of the trainer, or a `defaults:` list that starts from verl's own file."""
    keys, start = document.keys, verl.starts_from(document)
    if "actor_rollout_ref" in keys and keys & {"data", "trainer", "algorithm"}:
        return "has actor_rollout_ref"
    return f"its defaults start from {start}" if "ppo" in start and start.endswith("trainer") else None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the actor, the model that is trained."""
    result = verl.common(native, _MODEL, f"{_ACTOR}.fsdp_config", f"{_ACTOR}.optim")
    micro = given(native, f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    prompt = verl.setting(native, 512, integer, "data.max_prompt_length")
    response = verl.setting(native, 512, integer, "data.max_response_length")
    estimator = given(native, "algorithm.adv_estimator") or default("gae", verl.NOTE)
    reason = "actor.ppo_micro_batch_size_per_gpu is not set"
    result |= {
        "parallel.gpus": verl.setting(native, 8, integer, "trainer.n_gpus_per_node"),
        "batch.prompt_length": prompt,
        "batch.completion_length": response,
        "batch.sequence_length": derive(lambda a, b: a + b, prompt, response),
        "batch.micro_batch_size": derive(integer, micro) if micro else unknown(reason),
        "batch.num_generations": verl.setting(native, 1, integer, f"{_ROLLOUT}.n"),
        "objective": derive(lambda name: "ppo" if name == "gae" else str(name), estimator),
        "generation.vllm": default("colocate", verl.NOTE),
        "generation.gpu_memory_utilization": verl.setting(native, 0.5, number, f"{_ROLLOUT}.gpu_memory_utilization"),
        "generation.tensor": verl.setting(native, 2, integer, f"{_ROLLOUT}.tensor_model_parallel_size"),
        "generation.sleep": verl.setting(native, True, boolean, f"{_ROLLOUT}.free_cache_engine"),
    }
    strategy = given(native, f"{_ACTOR}.strategy")
    sharded = strategy is not None and strategy.value in ("fsdp", "fsdp2")
    if not sharded and (any(name.startswith(f"{_ACTOR}.megatron") for name in native) or _from_megatron(native)):
        result |= _megatron(native, micro)
    else:
        result |= verl.fsdp(native, f"{_ACTOR}.fsdp_config") | {
            "parallel.strategy": verl.setting(native, "fsdp1", verl.STRATEGIES.__getitem__, f"{_ACTOR}.strategy"),
            "parallel.context": verl.setting(native, 1, integer, f"{_ACTOR}.ulysses_sequence_parallel_size"),
            "reference_model": default("none", "verl b178a3cd56: the reference policy is offloaded to the host"),
        }
        result |= verl.accumulation(
            result,
            micro,
            given(native, f"{_ACTOR}.ppo_mini_batch_size") or default(256, verl.NOTE),
            result["batch.num_generations"],
        )
    fused = given(native, f"{_MODEL}.use_fused_kernels")
    if fused is not None:
        result["loss.logits"] = derive(lambda on: "fused" if boolean(on) else "full", fused)
    frozen = given(native, f"{_ACTOR}.freeze_vision_tower")
    if frozen is not None:
        result["vision.trainable"] = derive(lambda on: not boolean(on), frozen)
    dynamic = given(native, f"{_ACTOR}.use_dynamic_bsz")
    if dynamic is not None and dynamic.value is True:
        result.pop("batch.gradient_accumulation_steps", None)
        result |= verl.by_tokens(native, f"{_ACTOR}.use_dynamic_bsz", f"{_ACTOR}.ppo_max_token_len_per_gpu", 16384)
    return result


def _from_megatron(native: Native) -> bool:
    """Whether the `defaults:` list starts from a Megatron trainer."""
    return any(
        fact.known and isinstance(fact.value, str) and "megatron" in fact.value
        for name, fact in native.items()
        if name.startswith("defaults.")
    )


def _megatron(native: Native, micro: Fact | None) -> Facts:
    """Megatron-Core's settings (`config/engine/megatron.yaml`); recomputation and attention in `override_transformer_config`."""
    block = f"{_ACTOR}.megatron"
    own = {name: default(True, verl.NOTE) for name in ("sequence_parallel", "use_distributed_optimizer", "bf16")}
    settings = {**own, **nested(native, block), **nested(native, f"{block}.override_transformer_config")}
    if micro is not None:
        settings["micro_batch_size"] = micro
    core = megatron.core(settings, verl.NOTE) | megatron.precision(settings, verl.NOTE)
    kept = ("parallel.", "checkpointing.", "optimizer.", "model.attention", "model.dtype", "precision", "moe.", "loss.kernel")
    result = {key: fact for key, fact in core.items() if key.startswith(kept)}
    loss, reward = (
        given(native, name) or default(False, verl.NOTE) for name in (f"{_ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    )
    host = given(native, "actor_rollout_ref.ref.megatron.param_offload") or default(False, verl.NOTE)
    rank = given(native, f"{_MODEL}.lora_rank", f"{_MODEL}.lora.rank") or default(0, verl.NOTE)
    result["reference_model"] = derive(
        lambda a, b, away, r: "copy" if (boolean(a) or boolean(b)) and not boolean(away) and not integer(r) else "none",
        loss, reward, host, rank,
    )  # fmt: skip
    return result


_WRITE = {
    "batch.micro_batch_size": f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
    "batch.prompt_length": "data.max_prompt_length", "batch.completion_length": "data.max_response_length",
    "batch.num_generations": f"{_ROLLOUT}.n",
    "checkpointing.enabled": f"{_MODEL}.enable_gradient_checkpointing",
    "checkpointing.offload": f"{_MODEL}.enable_activation_offload",
    "model.attention": f"{_MODEL}.override_config.attn_implementation",
    "adapter.r": f"{_MODEL}.lora_rank", "adapter.alpha": f"{_MODEL}.lora_alpha",
    "adapter.target_modules": f"{_MODEL}.target_modules",
    "generation.gpu_memory_utilization": f"{_ROLLOUT}.gpu_memory_utilization",
    "generation.sleep": f"{_ROLLOUT}.free_cache_engine", "generation.tensor": f"{_ROLLOUT}.tensor_model_parallel_size",
    "parallel.gpus": "trainer.n_gpus_per_node", "parallel.nodes": "trainer.nnodes",
    "parallel.reshard_after_forward": f"{_ACTOR}.fsdp_config.reshard_after_forward",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> key of the trainer's YAML; None where it cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "loss.logits" and value in ("fused", "full"):
        return [(f"{_MODEL}.use_fused_kernels", value == "fused")]
    return verl.written(key, value, f"{_ACTOR}.fsdp_config", f"{_ACTOR}.optim")
