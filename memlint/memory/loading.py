"""What loading holds beyond what stays: it decides whether a run starts, not what its steps need."""

from __future__ import annotations

from memlint.memory.events import Events
from memlint.memory.setup import Setup
from memlint.memory.tensor import BLOCK, FP32, Ledger, Parameter, Storage
from memlint.memory.versions import OWN_MODELS

WHOLE = ("none", "ddp", "zero1", "zero2")
"""Strategies with which each rank loads the model as one GPU does."""

TABLES = ("embed_tokens", "lm_head")
"""Parts of the names of what axolotl raises (067b021c8b `loaders/utils.py`, `get_linear_embedding_layers`)."""


def converted(ledger: Ledger, setup: Setup, parameters: list[Parameter]) -> None:
    """axolotl raises embedding and head to float32 for an adapter, lets `prepare_model_for_kbit_training` raise whatever is not packed,
    lowers embedding and head again, and empties the cache (since October 2024; 067b021c8b `loaders/model.py`,
    `_configure_embedding_dtypes`, `_apply_post_lora_load_setup`; `utils/bench.py` resets the statistics). Each is copied while its
    original is still there. The adapter comes later, but is counted."""
    if setup.stack.framework != "axolotl" or setup.sharding.strategy not in WHOLE:
        return
    ledger.empties = ledger.restarts = True
    if not setup.adapter:
        _left_wide(setup, parameters)
        return
    outside = [p for p in parameters if p.layer < 0 and p.node is None and p.kind not in ("packed", "adapter", "norm")]
    halves = [p for p in outside if p.numel and p.itemsize < FP32]
    named = [p for p in halves if any(name in p.name for name in TABLES)]
    tables = named if setup.load_upcast else []
    ledger.enter("load")
    wide = []
    for table in tables:
        loaded = _as_loaded(ledger, table)
        wide.append(Storage(ledger, table.numel * FP32, "weights"))
        del loaded
    for other in halves if setup.quantization else ():
        if other not in named:
            loaded = _as_loaded(ledger, other)
            other.storage.resize(other.numel * FP32)
            ledger.events.append(other.storage.ident)
            del loaded
    wide.reverse()
    for table in tables:
        ledger.events.append(table.storage.ident)
        wide.pop()


def _left_wide(setup: Setup, parameters: list[Parameter]) -> None:
    """Without an adapter axolotl raises embedding, head and norms, too, and lowers them for attention that needs it and for
    cut-cross-entropy only (`attn_needs_dtype_cast`); DeepSpeed's engine converts the model itself."""
    narrow = setup.attention not in ("sdpa", "eager") or setup.loss_kernel == "cut_cross_entropy"
    if narrow or setup.sharding.strategy not in ("none", "ddp"):
        return
    for parameter in parameters:
        if any(name in parameter.name for name in (*TABLES, "norm")):
            parameter.itemsize = FP32
            parameter.storage.resize(parameter.numel * FP32)


def _as_loaded(ledger: Ledger, parameter: Parameter) -> Storage:
    """A block where the parameter's own was made, which is made later."""
    block = Storage(ledger, parameter.storage.nbytes, "weights")
    ledger.events[ledger.events.index(parameter.storage.ident)] = ledger.events.pop()
    return block


def warmed(setup: Setup, weights: int) -> int:
    """Bytes of the one block that transformers makes and drops before it loads so many weights that bitsandbytes is to pack: from 4.50
    on all that they take unpacked, from 4.51 on half of it (`modeling_utils.py`, `caching_allocator_warmup`). What is left of it stays
    reserved. From 5.0 on it is as large as what is packed, which changes nothing: 0."""
    version = setup.stack.transformers
    if not _packs(setup) or not (4, 50) <= version < (5, 0):
        return 0
    return weights * setup.weight_itemsize // (1 if version < (4, 51) else 2)


def after_block(events: Events, nbytes: int) -> Events:
    """The same run after a block of this size has come and gone."""
    block = len(events.sizes)
    return events._replace(loading=[block, -block, *events.loading], sizes=[*events.sizes, nbytes // BLOCK * BLOCK])


def unpacked(setup: Setup, weights: int) -> int:
    """The most that loading so many weights may need where threads put them on the card in the dtype they have, faster than
    bitsandbytes packs them: transformers 5.0 to 5.3 (`core_model_loading.py`, `convert_and_load_state_dict_in_model`;
    huggingface/transformers#43032; 5.4 loads one after the other). 0 elsewhere."""
    return weights * setup.weight_itemsize if _packs(setup) and (5, 0) <= setup.stack.transformers < (5, 4) else 0


def _packs(setup: Setup) -> bool:
    """bitsandbytes packs what transformers loads onto the card."""
    own = setup.stack.framework in OWN_MODELS
    return setup.quantization in ("bnb_4bit", "bnb_8bit") and not own and setup.sharding.strategy in WHOLE
