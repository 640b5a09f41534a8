"""Write `tuners.json`: what the tuners of PEFT keep and allocate, method by method.

`python -m tests.oracle.tuners [METHOD ...]` re-traces those methods (all without an argument) and keeps the rest.
`python -m tests.oracle.tuners METHOD:r=8 ...` lists what one more layer keeps instead.

The record: `versions`; `shape` (batch, sequence); `config` of the llama model (without its depth), whose query, value and down projections
are adapted; `cases`: `method`, `options` (fields of PEFT's configuration class), `regime` (of REGIMES), `biased` (the linears have
biases) and, for 2 and for 3 layers, the list FIELDS: `trainable` (elements), `adapters` (bytes of what PEFT added), `held`, `forward_peak`,
`backward_peak` (as in `record.py`, copies of weights included). Bytes are allocator blocks.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from torch.utils._python_dispatch import TorchDispatchMode

from .engine import Engine
from .fake_cuda import fake_cuda
from .family import BATCH, SEQUENCE, VOCAB
from .ledger import Block, Ledger, rounded
from .trace import plain_positions, to_fake_cuda

peft.tuners.boft.layer.get_fbd_cuda = lambda: None  # no compiler of CUDA code, as in most environments

TUNERS = Path(__file__).with_name("tuners.json")
FIELDS = ("trainable", "adapters", "held", "forward_peak", "backward_peak")
DEPTHS = (2, 3)
CONFIG = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
}
TARGETS = ["q_proj", "v_proj", "down_proj"]
REGIMES = ("bfloat16", "bfloat16+autocast", "bfloat16.checkpointed")
"""dtype of the base weights; adapters are in float32. A method's first configuration is traced under autocast, too."""
BIASED = {"attention_bias": True, "mlp_bias": True}

CASES: dict[str, list[dict[str, Any]]] = {
    "adalora": [{"init_r": 8, "total_step": 100}, {"init_r": 16, "total_step": 100, "lora_dropout": 0.1}],
    "beft": [{}],
    "boft": [{"boft_block_size": 4}, {"boft_block_size": 0, "boft_block_num": 8}],
    "c3a": [{"block_size": 64}, {"block_size": 128}],
    "deft": [{"r": 8}, {"r": 8, "decomposition_method": "qr"}, {"r": 8, "para": True}, {"r": 16, "alpha": 32, "deft_dropout": 0.1}],
    "delora": [{"r": 8}, {"r": 16, "module_dropout": 0.1}],
    "fourierft": [{"n_frequency": 1000}, {"n_frequency": 4000}],
    "glora": [{"r": 8}, {"config_A_B": "vector", "config_C": "vector", "config_D_E": "vector"}, {"config_A_B": "constant"}],
    "gralora": [{"r": 8}, {"r": 16, "gralora_k": 4, "hybrid_r": 4, "gralora_dropout": 0.1}],
    "hira": [{"r": 8}, {"r": 16, "hira_dropout": 0.1}],
    "hra": [{"r": 8}, {"r": 4, "apply_GS": True}],
    "ia3": [{"feedforward_modules": ["down_proj"]}, {"feedforward_modules": []}],
    "lily": [{"r": 8}, {"r": 16, "stride_A": 3, "num_B": 4}],
    "loha": [{"r": 8}, {"r": 8, "rank_dropout": 0.1}],
    "lokr": [{"r": 8}, {"r": 2, "decompose_both": True}, {"r": 4, "decompose_factor": 8, "rank_dropout": 0.1}],
    "lora": [{"r": 8}, {"r": 8, "lora_dropout": 0.1}, {"r": 8, "use_dora": True}, {"r": 8, "use_dora": True, "lora_dropout": 0.1},
             {"r": 8, "lora_bias": True}, {"r": 8, "init_lora_weights": "mica"},
             {"r": 8, "use_bdlora": {"target_modules_bd_a": ["down_proj"], "target_modules_bd_b": ["q_proj", "v_proj"], "nblocks": 2}}],
    "miss": [{"r": 8}, {"r": 8, "miss_dropout": 0.1}, {"r": 8, "init_weights": "bat"}, {"r": 64, "mini_r": 64, "init_weights": "mini"}],
    "oft": [{"oft_block_size": 32}, {"oft_block_size": 0, "r": 8}, {"oft_block_size": 32, "use_cayley_neumann": False},
            {"oft_block_size": 32, "block_share": True}, {"oft_block_size": 32, "coft": True, "num_cayley_neumann_terms": 3}],
    "osf": [{"effective_rank": 8}, {}],
    "peanut": [{"r": 8}, {"r": 16, "depth": 2}],
    "psoft": [{"r": 8}, {"r": 16, "use_cayley_neumann": True, "psoft_dropout": 0.1}, {"r": 16, "psoft_orth": False, "psoft_mag_a": False}],
    "pvera": [{"r": 8}, {"r": 16, "pvera_dropout": 0.1}],
    "randlora": [{"r": 8}, {"r": 16, "randlora_dropout": 0.1}],
    "road": [{"group_size": 64}, {"variant": "road_2"}, {"variant": "road_4"}],
    "shira": [{"r": 8}, {"r": 16}],
    "supertuning": [{}, {"sparsity": 0.9, "r": 8, "lora_alpha": 8, "lora_dropout": 0.1}],
    "tinylora": [{"r": 8}, {"r": 2, "u": 16, "weight_tying": 1.0, "tinylora_dropout": 0.1}],
    "unilora": [{}, {"r": 8, "theta_d_length": 1024, "unilora_dropout": 0.1}],
    "vblora": [{}, {"r": 8, "topk": 3, "vector_length": 128, "vblora_dropout": 0.1}],
    "vera": [{"r": 8}, {"r": 64, "vera_dropout": 0.1}],
    "waveft": [{}, {"n_frequency": 512, "wavelet_family": "db2"}, {"use_idwt": False}],
    "adamss": [{"r": 16}, {"r": 32, "num_subspaces": 3, "subspace_rank": 2}],
    "frod": [{"sparse_rate": 0.02}, {"sparse_rate": 0.02, "frod_dropout": 0.1}],
}  # fmt: skip
"""Configurations by method: each layer of PEFT in its default form, and with the options that change what it does."""

WITH_BIAS = ("glora", "boft", "deft", "adamss", "miss", "hra", "lora")
"""Methods that treat a bias in their own way: their first configuration is traced with biases, too."""

DORA = {"r": 8, "use_dora": True}
"""Traced like a first configuration."""

CHECKPOINTED = ("lora", "hira", "oft", "glora", "fourierft")
"""Methods whose first configuration is traced under checkpointing, too."""


class _Decided(TorchDispatchMode):
    """Answers what depends on values, which fake tensors do not have: a draw exceeds its dropout rate, nothing is infinite, and every
    element of a boolean index is true."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func is aten._local_scalar_dense.default:
            return getattr(args[0], "exceeds", False)
        if func in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default):
            indices = [i if i is None or i.dtype is not torch.bool else torch.arange(i.numel(), device=i.device) for i in args[1]]
            args = (args[0], indices, *args[2:])
        out = func(*args, **(kwargs or {}))
        if func is aten.gt.Scalar:
            out.exceeds = True
        return out


def build(method: str, layers: int, options: dict[str, Any], biased: bool, checkpointed: bool) -> tuple[Any, set[int]]:
    """The adapted model in training mode on the fake device, and the identities of the base model's tensors.

    It is built on the CPU, since some methods decompose the weights, and then moved tensor by tensor; tensors that are neither parameters
    nor buffers stay behind, as they do in `model.to`.
    """
    config = transformers.AutoConfig.for_model("llama", num_hidden_layers=layers, **CONFIG, **(BIASED if biased else {}))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    own = {id(t) for t in (*model.parameters(), *model.buffers())}
    kind = PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType(method.upper())]
    adapted = peft.get_peft_model(model, kind(task_type="CAUSAL_LM", target_modules=TARGETS, **options))
    moved = to_fake_cuda(adapted)
    base = {id(moved[old]) for old in own if old in moved}
    return adapted.train(), base


def step(method: str, layers: int, options: dict[str, Any], regime: str, biased: bool) -> tuple[list[int], tuple[Block, ...]]:
    """The numbers of one step in the order of FIELDS, and the blocks held between forward and backward."""
    model, base = build(method, layers, options, biased, "checkpointed" in regime)
    with fake_cuda(), plain_positions():
        ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
        ledger, engine = Ledger(), Engine()
        ledger.ignore(model.parameters(), weights=True)
        ledger.ignore([*model.buffers(), ids])
        added = {id(t): t for t in (*model.parameters(), *model.buffers()) if id(t) not in base}
        autocast = torch.autocast("cuda", torch.bfloat16) if "autocast" in regime else contextlib.nullcontext()
        with ledger, _Decided(), engine.active():
            with autocast:
                output = model(input_ids=ids, labels=ids, use_cache=False)
            loss = output.loss
            forward_peak = ledger.peak
            del output
            gc.collect()
            held, blocks = ledger.live, tuple(ledger.blocks.values())
            ledger.mark()
            loss.backward()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    adapters = sum(rounded(t.untyped_storage().nbytes()) for t in added.values())
    return [trainable, adapters, held, forward_peak, ledger.peak], blocks


def traced(method: str) -> Iterator[dict[str, Any]]:
    """Every case of a method."""
    for position, options in enumerate(CASES[method]):
        every = position == 0 or options == DORA
        regimes = [(regime, False) for regime in (REGIMES[: 2 + (method in CHECKPOINTED)] if every else REGIMES[:1])]
        if position == 0 and method in WITH_BIAS:
            regimes.append((REGIMES[0], True))
        for regime, biased in regimes:
            fields = [step(method, depth, options, regime, biased)[0] for depth in DEPTHS]
            yield {"method": method, "options": options, "regime": regime, "biased": biased, "fields": fields}


def listing(method: str, options: dict[str, Any], regime: str, biased: bool) -> None:
    """Print what one more layer keeps."""
    names = {SEQUENCE: "s", BATCH: "b", BATCH * SEQUENCE: "N", 512: "h", 1536: "i", 256: "kv", VOCAB: "V"}
    two, three = (step(method, depth, options, regime, biased) for depth in DEPTHS)
    more = Counter(describe(block, names) for block in three[1])
    more.subtract(describe(block, names) for block in two[1])
    print(dict(zip(FIELDS, zip(two[0], three[0], strict=True), strict=True)))
    for name, count in more.items():
        if count:
            print(f"  {count:+3d} {name}")


def describe(block: Block, names: dict[int, str]) -> str:
    """Type, shape and origin of a block."""
    dims = ",".join(names.get(d, str(d)) for d in block.shape)
    return f"{str(block.dtype)[6:]:9} ({dims}) {block.operation.removeprefix('aten.')}"


def main(names: list[str]) -> None:
    """List one configuration (`METHOD:options`, perhaps `@regime`, `@biased`), or trace and write."""
    for name in [name for name in names if ":" in name]:
        words, *marks = name.split("@")
        method, _, options = words.partition(":")
        regime = next((mark for mark in marks if mark in REGIMES), REGIMES[0])
        listing(method, eval(f"dict({options})"), regime, "biased" in marks)
    methods = [name for name in names or CASES if ":" not in name]
    if not methods:
        return
    kept = json.loads(TUNERS.read_text())["cases"] if TUNERS.exists() else []
    cases = [case for case in kept if case["method"] in CASES]
    for method in methods:
        print(method, flush=True)
        try:
            cases = [case for case in cases if case["method"] != method] + list(traced(method))
        except Exception as error:  # the others are worth having
            print(f"  failed: {type(error).__name__}: {error}", flush=True)
        write(sorted(cases, key=lambda case: str(case["method"])))


def write(cases: list[dict[str, Any]]) -> None:
    """The record, one line per case."""
    head = {
        "versions": {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft")},
        "shape": {"batch": BATCH, "sequence": SEQUENCE},
        "config": CONFIG,
        "targets": TARGETS,
        "fields": list(FIELDS),
    }
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    TUNERS.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
