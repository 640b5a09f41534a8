"""ms-swift's RLHF on Ray with Megatron: YAML whose `train`, `rollout` and `teacher` groups lie over shared settings.

Read at ms-swift 3602360a56, `swift/ray/megatron/driver_utils.py` (`parse_ray_yaml`).
"""

from __future__ import annotations

from typing import Any

from memlint.dialects import ms_swift
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number
from memlint.dialects.fsdp import nested
from memlint.facts import default, fixed
from memlint.read.document import Document, MappingNode

NAME = "ms_swift_ray"
FRAGMENT = False
INTERPOLATES = False

_GROUPS = ("train", "rollout", "teacher")


def recognise(document: Document) -> str | None:
    """`rlhf_type` with a `train` group that has GPUs."""
    group = document.at("train")
    if "rlhf_type" in document.keys and isinstance(group, MappingNode) and "gpus" in group and document.text_at("model"):
        return "has rlhf_type and train.gpus"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the trained group."""
    shared = {name: fact for name, fact in native.items() if name.partition(".")[0] not in _GROUPS}
    train = nested(native, "train")
    command = {"swift_command": fixed("rlhf"), "swift_backend": fixed("megatron")}
    result = ms_swift.facts({**shared, **train, **command}, context)
    nodes = given(native, "nnodes") or default(1, ms_swift.NOTE)
    gpus = given(train, "gpus") or default(1, ms_swift.NOTE)
    result["parallel.nodes"] = derive(integer, nodes)
    result["parallel.gpus"] = derive(lambda count, hosts: max(integer(count) // integer(hosts), 1), gpus, nodes)
    return result | _rollouts(native)


def _rollouts(native: Native) -> Facts:
    """Rollouts on GPUs of their own are a server's; in a group with `train` they share its GPUs."""
    on = given(native, "use_vllm") or default(False, ms_swift.NOTE)
    shared = given(native, "colocate_groups") or default([], ms_swift.NOTE)
    result: Facts = {
        "generation.vllm": derive(
            lambda used, groups: ("colocate" if any({"train", "rollout"} <= set(group) for group in groups) else "server")
            if boolean(used) else "none",
            on, shared,
        )
    }  # fmt: skip
    if result["generation.vllm"].value == "colocate":
        level = given(native, "sleep_level") or default(1, ms_swift.NOTE)
        result["generation.sleep"] = derive(lambda how: integer(how) > 0, level)
        for key, name, convert in (("generation.gpu_memory_utilization", "vllm_gpu_memory_utilization", number),
                                   ("generation.tensor", "vllm_tensor_parallel_size", integer)):  # fmt: skip
            fact = given(native, f"rollout.{name}", name)
            if fact is not None:
                result[key] = derive(convert, fact)
    return result


def _group(name: str) -> str:
    """Where an example writes a setting: the parallel degrees and the adapter under `train`, the rest beside it."""
    return f"train.{name}" if name.endswith("parallel_size") or name.startswith("lora_") else name


_WRITE: dict[str, str] = {
    "batch.micro_batch_size": "micro_batch_size", "batch.sequence_length": "max_length", "batch.padding_free": "padding_free",
    "batch.num_generations": "num_generations", "batch.completion_length": "max_completion_length",
    "adapter.r": "lora_rank", "adapter.alpha": "lora_alpha", "parallel.tensor": "tensor_model_parallel_size",
    "parallel.pipeline": "pipeline_model_parallel_size", "parallel.context": "context_parallel_size",
    "parallel.expert": "expert_model_parallel_size",
    "generation.gpu_memory_utilization": "rollout.vllm_gpu_memory_utilization",
    "generation.tensor": "rollout.vllm_tensor_parallel_size",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> setting of the file; None where it cannot say it."""
    return [(_group(_WRITE[key]), value)] if key in _WRITE else None
