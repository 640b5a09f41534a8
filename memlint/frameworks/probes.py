"""Questions that a script asks the card or the process: which answers are known, and which the target card decides."""

from __future__ import annotations

from memlint.facts import Fact, Origin, Status, fixed
from memlint.read.pyeval.joins import merge, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call
from memlint.source import Span

_BF16 = frozenset({"is_bf16_supported", "is_bfloat16_supported", "is_torch_bf16_gpu_available", "is_bf16_available",
                   "is_torch_bf16_available"})  # fmt: skip
_TRUE = frozenset({"is_available", "is_initialized", "is_torch_available", "is_torch_cuda_available", "is_cuda_available",
                   "is_bitsandbytes_available", "is_peft_available", "is_accelerate_available"})  # fmt: skip
_FALSE = frozenset({"is_torch_xla_available", "is_torch_npu_available", "is_torch_xpu_available", "is_torch_mps_available",
                    "is_torch_tpu_available", "is_xpu_available", "is_npu_available", "is_mlu_available"})  # fmt: skip
_DEVICES = ("cuda", "accelerator")


def by_card(yes: object, no: object, span: Span, note: str) -> Fact:
    """A value that bfloat16 support of the target card decides."""
    return Fact(None, Status.CHOICES, (Origin(span, note),), (yes, no), "depends on the card", "gpu.bf16")


def drawn(options: Fact | None) -> Fact | None:
    """One of a list that is written out: a search space, a random pick."""
    if options is None or not options.known or not isinstance(options.value, Array) or options.value.open:
        return None
    return merge(list(options.value.items)) if options.value.items else None


def probe(machine: Machine, name: str, call: Call) -> Fact | None:
    """The answer of a probe, or None when the name is none."""
    tail = name.rpartition(".")[2]
    if tail in _BF16:
        return by_card(True, False, call.span, f"`{tail}()`")
    if tail == "get_device_capability":
        major = by_card(8, 7, call.span, "compute capability of the card")
        return fixed(Array((major, fixed(0)), "tuple"), call.span)
    if name.startswith("torch.") and tail in _TRUE:
        if ".mps." in name or ".xpu." in name or ".npu." in name:
            return fixed(False, call.span)
        if tail == "is_initialized":
            return None
        return fixed(True, call.span)
    if tail in _TRUE and tail != "is_available" and tail != "is_initialized":
        return fixed(True, call.span)
    if tail in _FALSE:
        return fixed(False, call.span)
    if tail == "device_count" and name.startswith("torch."):
        launcher = getattr(machine.launch, "launcher", {}) or {}
        return launcher.get("parallel.gpus") or opaque("the number of GPUs of the machine", "probe", (), call.span)
    if tail == "is_flash_attn_2_available":
        return opaque("whether flash-attn is installed", "probe", (), call.span)
    if tail == "get_world_size" and name.startswith("torch."):
        launcher = getattr(machine.launch, "launcher", {}) or {}
        gpus, nodes = launcher.get("parallel.gpus"), launcher.get("parallel.nodes")
        if gpus is not None and gpus.known and (nodes is None or nodes.known):
            return Fact(gpus.value * (nodes.value if nodes else 1), gpus.status, gpus.origin)
        return opaque("the number of processes that the launch starts is not known", f"call:{name}", (), call.span)
    if tail in {"get_rank", "get_local_rank"} and name.startswith("torch."):
        return fixed(0, call.span, "the first process")
    if name in {"random.choice", "numpy.random.choice", "ray.tune.choice", "ray.tune.grid_search"}:
        return drawn(call.args[0] if call.args else None)
    if name == "torch.device" and call.args:
        return call.args[0]
    return None
