"""What `megatron sft|pt|rlhf` of ms-swift trains: Megatron-Core's settings with Swift's defaults.

Read at ms-swift 3602360a56: `swift/megatron/arguments/megatron_args.py`, `swift/megatron/trainers/rlhf_mixin.py`,
`swift/arguments/base_args/model_args.py`.
"""

from __future__ import annotations

from memlint.dialects import megatron
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer
from memlint.facts import Fact, default
from memlint.typed import Any

NOTE = "ms-swift 3602360a56 default"
_DEFAULTS = {
    "micro_batch_size": 1, "global_batch_size": 16, "recompute_granularity": "selective", "use_distributed_optimizer": True,
    "cross_entropy_loss_fusion": True, "attention_backend": "flash", "expert_tensor_parallel_size": 1,
}  # fmt: skip
"""Where `MegatronArguments` differs from Megatron-LM."""
_UNREFERENCED = ("rm", "gkd")


def facts(native: Native, held: Fact, method: Fact) -> Facts:
    """The facts that only this backend has, or has otherwise than Swift's own trainer; `held` is the dtype that was asked for."""
    own = {name: default(value, NOTE) for name, value in _DEFAULTS.items() if given(native, name) is None}
    half = _half(native, held)
    result = megatron.core({**native, **own}, NOTE) | megatron.linears(native)
    result |= {
        "batch.padding_free": _padding_free(native),
        "reference_model": _reference(native, method),
        "model.dtype": half,
        "precision": derive(lambda name: "fp16-true" if name == "float16" else "bf16-true", half),
        "optimizer.master_weights": derive(lambda _: True, half),
        "optimizer.grad_dtype": _gradients(native, half),
    }
    steps = _steps({**native, **own})
    if steps is not None:
        result["batch.gradient_accumulation_steps"] = steps
    if method.value not in ("none", None):
        # `Float16Module` casts adapters with the rest (Megatron-LM 0.13 `training.py`, `get_model`).
        result["adapter.dtype"] = half
    return result


def _half(native: Native, held: Fact) -> Fact:
    """Weights are half: a float32 checkpoint is trained in float16 (`_init_mixed_precision`), others in their own dtype."""
    bf16, fp16 = given(native, "bf16"), given(native, "fp16")
    for flag, name in ((fp16, "float16"), (bf16, "bfloat16")):
        if flag is not None and derive(boolean, flag).value is True:
            return flag.with_value(name)
    if not held.known:
        return default("bfloat16", f"{NOTE}: the checkpoint's dtype, mostly bfloat16, at any rate a half one")
    return derive(lambda name: "float16" if name == "float32" else name, held)


def _gradients(native: Native, half: Fact) -> Fact:
    """bfloat16 gradients are accumulated in float32 unless `main_grads_dtype` is another (`_map_dtype`)."""
    asked = given(native, "main_grads_dtype") or default("fp32", NOTE)
    return derive(lambda name, kind: "float32" if name == "bfloat16" and kind == "fp32" else name, half, asked)


def _padding_free(native: Native) -> Fact:
    stated = given(native, "padding_free")
    return derive(boolean, stated) if stated is not None else default(True, NOTE)


def _reference(native: Native, method: Fact) -> Fact:
    """Full-parameter training of preferences or policies has a second model (`prepare_model`)."""
    kind = given(native, "rlhf_type")
    if kind is None:
        return default("none", NOTE)
    return derive(lambda name, how: "copy" if how == "none" and name not in _UNREFERENCED else "none", kind, method)


def _steps(native: Native) -> Fact | None:
    """Micro-batches of a step: the global batch over those of all data-parallel ranks, once the launch says how many GPUs there are."""
    gpus, nodes = given(native, "ENV.NPROC_PER_NODE"), given(native, "ENV.NNODES") or default(1, "torchrun default")
    total, micro = given(native, "global_batch_size"), given(native, "micro_batch_size")
    if gpus is None or total is None or micro is None:
        return None
    degrees = [
        given(native, f"{name}_parallel_size") or default(1, NOTE) for name in ("tensor_model", "pipeline_model", "context")
    ]

    def count(batch: Any, each: Any, cards: Any, machines: Any, *split: Any) -> int:
        ranks = integer(cards) * integer(machines)
        for degree in split:
            ranks //= integer(degree)
        return max(1, integer(batch) // (integer(each) * max(1, ranks)))

    return derive(count, total, micro, gpus, nodes, *degrees)
