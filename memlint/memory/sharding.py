"""Who holds which part of a parameter when: FSDP, ZeRO and DDP as changes to the program.

Facts: torch 2.4 and 2.13 `distributed/fsdp/_runtime_utils.py` and `_flat_param.py` (FSDP1: the root unit stays gathered between forward and
backward, a unit is freed after its forward; backward gathers a unit again; a gradient is reduce-scattered as soon as its unit is
done), `distributed/fsdp/_fully_shard/` (FSDP2: the same, one gather ahead), DeepSpeed 0.19 `runtime/zero/stage_1_and_2.py` and `stage3.py`
(16-bit weights, float32 partitions, bucket buffers), torch 2.13 `nn/parallel/distributed.py` and `reducer.cpp` (DDP buckets).
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts import TrainingRun
from memlint.memory.tensor import HALF
from memlint.memory.versions import ACCELERATE_TRAINERS, stack_of
from memlint.typed import NamedTuple

ZERO = ("zero1", "zero2", "zero3")
FSDP = ("fsdp1", "fsdp2")

HYBRID = ("hybrid_shard", "_hybrid_shard")
"""Strategies that shard within a node and replicate between nodes."""
KEPT = ("shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2")
"""Strategies that keep gathered weights between forward and backward (`RESHARD_AFTER_FORWARD_HANDLE_STRATEGIES` names the others)."""

DEFAULT_BUCKET = 500_000_000
"""`reduce_bucket_size` in elements (DeepSpeed 0.19 `runtime/zero/config.py`)."""


FILE_BUCKET = 200_000_000
"""The same in ms-swift's own files below stage 3 (3602360a56 `swift/config/zero*.json`), and in transformers' (`tests/deepspeed/
ds_config_zero2.json`), which scripts copy. Stage 3 leaves it to HF in both; ms-swift's files do not overlap, transformers' do."""


DEFAULT_DISTANCE = 1_000_000_000
"""`max_reuse_distance`, `max_live_parameters` and `sub_group_size` in elements (the same file)."""


class Sharding(NamedTuple):
    """One rank's share. `ranks` = 1 means that nothing is sharded."""

    strategy: str = "none"
    ranks: int = 1
    """Ranks that a sharded tensor is divided over."""
    world: int = 1
    wrapped: bool = True
    """Each block is a unit of its own; else the whole model is one."""
    reshards: bool = True
    """A block's weights are freed after its forward."""
    compute_itemsize: int = 0
    """dtype in which gathered weights are used; 0: the dtype they are stored in."""
    reduce_itemsize: int = 0
    limits_gathers: bool = True
    """FSDP1's rate limiter is on (`limit_all_gathers`)."""
    ahead: int = 0
    """Units gathered ahead of the one at work."""
    asks_after_leaves: bool = False
    """FSDP1 gathers the next block when the backward of a block reaches the first of its trained leaves, which are units in between."""
    reduce_bucket: int = 0
    bucket_of_width: bool = False
    """The reduce bucket has as many elements as the square of the model's width."""
    overlap: bool = False
    offload_params: bool = False
    offload_optimizer: bool = False
    offloaded_states: float = 1.0
    """Share of the optimizer states that an offloaded optimizer keeps in host memory (Megatron-LM 0.13 `hybrid_optimizer.py`,
    `offload_fraction`; DeepSpeed 0.19 `offload_config.py`, `ratio`)."""
    remainders: bool = False
    """Of a float32 master only the 16 bits are kept that its bfloat16 weight lacks (Megatron-LM 0.13 `core/optimizer/__init__.py`: the
    precision-aware optimizer on the card is Transformer Engine's, 2.1 `fused_adam.py` `store_param_remainders`)."""
    bucket_view: bool = False
    clones_outputs: bool = False
    """DDP that looks for unused parameters returns clones of its model's outputs."""
    head_apart: bool = False
    """Final norm and head are a unit, the embedding another."""
    reshards_root: bool = False
    """The root unit is freed after the model's forward, and gathered again for the head's backward."""
    keeps_last: bool = False
    """The last block stays gathered between forward and backward (torchtitan)."""
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    """Ranks that a sequence is divided over."""
    exchange: str = ""
    """How they see each other's parts in attention: a2a, gather or ring."""
    expert: int = 1
    expert_beside: bool = False
    """Expert parallelism is an axis of its own beside the one that shards, not a part of it."""
    expert_tensor: int = 1
    """Tensor ranks an expert is split over."""
    remaps: bool = False
    """Megatron's distributed optimizer moves the weights into one buffer when the model is wrapped."""
    sequence_parallel: bool = False
    """Between the matrices of a tensor-parallel layer the positions are divided instead."""
    reuse: int = 0
    """ZeRO-3 keeps parameters that are used again within this many elements (`max_reuse_distance`), at most `max_live_parameters`."""
    secondary: int = 1
    """ZeRO++ hpZ: ranks that a second copy of the weights is divided over, from forward to the step; 1: there is none."""
    gathers_int8: bool = False
    """ZeRO++ qwZ."""
    frozen_int8: bool = False
    reduces_int4: bool = False
    """ZeRO++ qgZ, which works between nodes only."""
    contiguous_gradients: bool = True
    sub_group: int = DEFAULT_DISTANCE
    """ZeRO-3 steps this many elements of a rank's partition at a time, but at least one parameter's (`stage3.py`,
    `_create_fp16_sub_groups`)."""
    syncs_each: bool = True
    """Each micro-batch's gradients are reduced; else whole ones accumulate until the last one (`no_sync`)."""
    built_sharded: bool = True
    """ZeRO-3: the model was built under `zero.Init`, so that no rank ever has all of it."""
    leaves_wrapped: bool = False
    leaves_apart: bool = True
    """Trained leaves (adapters) are units of their own; else a block's flat parameter mixes frozen and trained weights."""

    @property
    def shards_weights(self) -> bool:
        """Each rank holds only its part of the weights between uses."""
        return self.ranks > 1 and self.strategy in (*FSDP, "zero3")

    @property
    def copies_out(self) -> bool:
        """Weights are copied out of the all-gather's result."""
        return self.strategy in ("fsdp2", "zero3")

    @property
    def shards_states(self) -> bool:
        """Each rank holds only its part of the optimizer states."""
        return self.ranks > 1 and self.strategy in (*FSDP, *ZERO, "megatron")

    @property
    def is_zero(self) -> bool:
        """DeepSpeed shards, at any stage."""
        return self.strategy in ZERO

    @property
    def states_here(self) -> float:
        """Share of a rank's optimizer states that is on the card."""
        return 1 - self.offloaded_states if self.offload_optimizer else 1.0

    def share(self, numel: int, kind: str = "") -> int:
        """Elements of a rank's part."""
        return -(-numel // (self.expert_ranks if kind == "experts" else self.ranks))

    @property
    def expert_ranks(self) -> int:
        """Ranks that a rank's own experts are shared with, those that have the same ones: expert parallelism takes its ranks from the
        sharding ones (torchtitan `distributed/parallel_dims.py`, `dp_shard_mod_ep`), or stands beside them (axolotl 067b021c8b
        `integrations/expert_parallel/plugin.py`: `expert_parallel_size x dp_shard_size` is the world, experts are sharded on both)."""
        return self.ranks if self.expert_beside else max(1, self.ranks // self.expert)

    def states_ranks(self, of_experts: bool) -> int:
        """Ranks that the optimizer states of a parameter are divided over: Megatron's experts and their adapters have a data-parallel
        group of their own (0.15 `core/parallel_state.py`, expert data parallel: world / (pipeline x expert x expert tensor))."""
        if not self.shards_states:
            return 1
        if self.strategy == "megatron" and of_experts:
            return max(1, self.world // (self.pipeline * self.expert * self.expert_tensor))
        return self.expert_ranks if of_experts else self.ranks


def _upcasts_shards(run: TrainingRun) -> bool:
    """Whether trained 16-bit weights become float32 shards under mixed precision: accelerate from 0.30 on (1.15 `accelerator.py`
    `prepare_model`, "Upcasted low precision parameters")."""
    versions = run.value("framework.versions")
    own = str(versions.get("accelerate") or "") if isinstance(versions, Mapping) else ""
    return stack_of(run).uses_accelerate and (not own or own.split(".")[:1] != ["0"] or int(own.split(".")[1]) >= 30)


def sharding_of(run: TrainingRun, weight_itemsize: int) -> Sharding:
    """Read the sharding facts of a run."""
    value = run.value
    strategy = str(value("parallel.strategy", "none") or "none")
    world = int(value("parallel.gpus", 1) or 1) * int(value("parallel.nodes", 1) or 1)
    tensor, pipeline, context, expert = (
        max(1, int(value(f"parallel.{degree}", 1) or 1)) for degree in ("tensor", "pipeline", "context", "expert")
    )
    if tensor == 1 and value("parallel.tensor_plan"):
        tensor = (
            world  # transformers 5.24 `integrations/tensor_parallel.py`, `initialize_tensor_parallelism`: `tp_size` is the world
        )
    # Ranks of one sequence share the weights as data-parallel ones do (torchtitan and accelerate: the mesh `dp_shard_cp`).
    shard = max(0, int(value("parallel.data_shard", 0) or 0))
    ranks = shard * context if shard else world // (tensor * pipeline)
    if strategy == "megatron":
        ranks = max(1, world // (tensor * pipeline)) if value("parallel.distributed_optimizer") else 1
    elif value("parallel.fsdp_sharding") == "no_shard" or strategy not in (*FSDP, *ZERO):
        ranks = 1
    elif str(value("parallel.fsdp_sharding") or "").startswith(HYBRID) and not value("parallel.data_shard"):
        ranks = int(value("parallel.gpus", 1) or 1)
    compute = {"bfloat16": 2, "float16": 2, "float32": 4}.get(str(value("parallel.mp_param_dtype") or ""), 0)
    mixed = str(value("precision") or "").endswith("-mixed")
    composer = value("parallel.composer_mixed_precision")
    if composer or (strategy in FSDP and mixed and not compute and (weight_itemsize == 4 or _upcasts_shards(run))):
        compute = HALF
    reduce = {"bfloat16": 2, "float16": 2, "float32": 4}.get(str(value("parallel.mp_reduce_dtype") or ""), 0)
    stated = value("parallel.reduce_bucket_size") or value("parallel.overlap_comm") is not None
    preset = value("framework.name") in SWIFT and not stated
    copied = value("framework.name") in COPIED and not stated
    apart = strategy == "fsdp2" and stack_of(run).head_apart and not value("model.tie_word_embeddings")
    return Sharding(
        strategy=strategy,
        ranks=max(1, ranks),
        world=world,
        wrapped=value("parallel.wrap_policy", "transformer") != "none",
        reshards=bool(value("parallel.reshard_after_forward", value("parallel.fsdp_sharding") not in KEPT)),
        compute_itemsize=compute,
        reduce_itemsize=reduce,
        limits_gathers=value("parallel.limit_all_gathers") is not False,
        ahead=_ahead(run, strategy),
        asks_after_leaves=bool(value("parallel.wrap_trainable_leaves")) and _prefetches(run, strategy),
        reduce_bucket=_elements(run, "reduce_bucket_size", FILE_BUCKET if preset or copied else DEFAULT_BUCKET),
        overlap=bool(value("parallel.overlap_comm", (strategy == "zero3" and not preset) or copied)),
        bucket_of_width=bool(value("parallel.bucket_of_width", (preset or copied) and strategy == "zero3")),
        offload_params=str(value("parallel.offload_params", "none")) != "none",
        offload_optimizer=str(value("parallel.offload_optimizer", "none")) != "none"
        or (strategy in FSDP and str(value("parallel.offload_params", "none")) != "none"),
        offloaded_states=float(value("parallel.offload_optimizer_share", 1.0)),
        remainders=strategy == "megatron"
        and bool(value("optimizer.precision_aware"))
        and str(value("parallel.offload_optimizer", "none")) == "none"
        and str(value("precision")) == "bf16-true",
        bucket_view=bool(value("parallel.gradient_as_bucket_view", False)),
        clones_outputs=strategy == "ddp" and world > 1 and _looks_for_unused(run),
        head_apart=apart,
        reshards_root=strategy == "fsdp2" and stack_of(run).reshards_root,
        keeps_last=value("parallel.last_layer_resharded") is False and not apart,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        exchange=_exchange(run) if context > 1 else "",
        expert=expert,
        expert_beside=value("framework.name") == "axolotl",
        expert_tensor=int(value("parallel.expert_tensor") or (1 if "swift" in str(value("framework.name")) else tensor)),
        remaps=strategy == "megatron" and bool(value("parallel.distributed_optimizer")),
        sequence_parallel=bool(value("parallel.sequence_parallel", value("framework.name") == "torchtune")),
        reuse=min(_elements(run, key, DEFAULT_DISTANCE) for key in ("max_reuse_distance", "max_live_parameters")),
        sub_group=_elements(run, "sub_group_size", DEFAULT_DISTANCE),
        secondary=_elements(run, "secondary_shard", 1) if strategy == "zero3" else 1,
        gathers_int8=strategy == "zero3" and bool(value("parallel.quantized_weights")),
        frozen_int8=strategy == "zero3" and bool(value("parallel.quantized_frozen")),
        reduces_int4=strategy == "zero3"
        and bool(value("parallel.quantized_gradients"))
        and int(value("parallel.nodes") or 1) > 1,
        contiguous_gradients=bool(value("parallel.contiguous_gradients", True)),
        syncs_each=_syncs_each(run, strategy),
        built_sharded=bool(value("parallel.zero3_init", stack_of(run).uses_accelerate)),
        leaves_wrapped=bool(value("parallel.wrap_trainable_leaves", False)),
        leaves_apart=not value("parallel.mixed_frozen_flat", False),
    )


SWIFT = ("ms_swift", "ms-swift")
COPIED = ("transformers", "hf_trainer")
"""Frameworks without DeepSpeed files of their own."""
HF_TRAINERS = ACCELERATE_TRAINERS - {"accelerate", "open_instruct"}


def _looks_for_unused(run: TrainingRun) -> bool:
    """Whether DDP passes its outputs through `_DDPSink`, which clones them (torch 2.13 `nn/parallel/distributed.py`); with a static graph
    in the first step only. The HF Trainer asks for it unless a model that is no PEFT model is checkpointed (transformers 5.24 `trainer.py`,
    `_build_accelerator_args`)."""
    if run.value("parallel.static_graph"):
        return False
    asked = run.value("parallel.find_unused_parameters")
    if asked is not None:
        return bool(asked)
    if str(run.value("framework.name") or "transformers") not in HF_TRAINERS:
        return False
    return not run.value("checkpointing.enabled") or run.value("adapter.method", "none") != "none"


EXCHANGES = {
    "a2a": "a2a", "a2a+p2p": "a2a", "ulysses": "a2a", "p2p": "ring", "alltoall": "ring", "allgather": "gather", "all_gather": "gather",
}  # fmt: skip
"""`cp_comm_type` of Megatron-LM; `context_parallel_rotate_method` of torch, whose `alltoall` sends to the next rank only."""
ULYSSES = {"verl", "ms_swift", "ms-swift", "deepspeed"}
"""Frameworks whose sequence parallelism exchanges heads for positions; torch's and ring_flash_attn's gather keys and values."""


def _exchange(run: TrainingRun) -> str:
    said = EXCHANGES.get(str(run.value("parallel.context_comm") or "").lower())
    if said:
        return said
    if run.value("parallel.strategy") == "megatron":
        return "ring"  # `cp_comm_type` is p2p
    return "a2a" if str(run.value("framework.name")) in ULYSSES else "gather"


def _elements(run: TrainingRun, name: str, otherwise: int) -> int:
    """A size of DeepSpeed's, of which 0 is one."""
    found = run.value(f"parallel.{name}")
    return otherwise if found is None else int(found)


def _ahead(run: TrainingRun, strategy: str) -> int:
    """Units gathered ahead in backward: FSDP2 and ZeRO-3 one; FSDP1 one with `BACKWARD_PRE` (torch's default; accelerate passes none,
    1.15 `utils/dataclasses.py`), where the next unit in order is a trained leaf if those are wrapped by themselves."""
    if strategy != "fsdp1":
        return 1 if strategy in ("fsdp2", "zero3") else 0
    return 1 if _prefetches(run, strategy) and not run.value("parallel.wrap_trainable_leaves") else 0


def _prefetches(run: TrainingRun, strategy: str) -> bool:
    """FSDP1's `backward_prefetch` is BACKWARD_PRE."""
    accelerate = str(run.value("framework.name") or "transformers") in ACCELERATE_TRAINERS
    prefetch = str(run.value("parallel.backward_prefetch") or ("none" if accelerate else "backward_pre")).lower()
    return strategy == "fsdp1" and prefetch == "backward_pre"


def _syncs_each(run: TrainingRun, strategy: str) -> bool:
    """Whether gradients are reduced in every micro-batch: not under accelerate's `accumulate`, which enters `no_sync` (1.15
    `accelerator.py`; the HF Trainer too, except with DeepSpeed), nor in litgpt (`fabric.no_backward_sync`)."""
    stated = run.value("parallel.sync_each_batch")
    if stated is not None:
        return bool(stated)
    if strategy in FSDP and int(run.value("parallel.pipeline") or 1) > 1:
        return False  # torch 2.13 `pipelining/stage.py`, `backward_maybe_with_nosync`
    name = str(run.value("framework.name") or "transformers")
    return strategy not in FSDP or name not in (ACCELERATE_TRAINERS | {"litgpt"})
