"""Write `compiled.json`: what compiled models keep for backward, and the peaks of their graphs.

`python -m tests.oracle.compiled [NAME ...]` traces those families of `NAMES` (all without an argument) and keeps the rest;
`python -m tests.oracle.compiled --list NAME REGIME SCOPE` lists what one more layer keeps.

torch.compile itself runs: Dynamo, AOTAutograd with inductor's decompositions and joint-graph passes, and its min-cut partitioner, then
inductor's lowering and scheduler, which says which buffers there are and when each goes. Only the generation of code is left out: the
two graphs that the partitioner makes are run operation by operation, on fake CUDA tensors.

The record is that of `record.py`, but for the name of a regime, which ends in what is compiled (`model`, or `blocks`, each by itself;
`selective` checkpointing is torchtitan's, within the compiled block), and for `fields`: copies of weights count as held.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import sys
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config as inductor
import torch._inductor.scheduler as scheduler
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import partitioners
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from .engine import Engine, gradients
from .fake_cuda import fake_cuda
from .families import BY_NAME
from .family import BATCH, SEQUENCE, Family
from .inputs import inputs
from .ledger import Block, Ledger, _flash_workspace, rounded
from .media_families import MEDIA
from .record import DEPTHS, media, write
from .regime import Regime
from .trace import _describe, build, plain_positions

RECORD = Path(__file__).with_name("compiled.json")
FIELDS = ("held", "outputs", "forward_peak", "backward_peak", "trainable")
NAMES = ("llama", "qwen3", "gemma", "gpt2", "bert", "vit")
BLOCKS_ONLY = ("bert", "vit")
"""The whole model is compiled once more within the step that is measured, and the ledger counts what that takes."""
REGIMES = (
    "float32+autocast.sdpa.nomask.full.off.model",
    "float32+autocast.sdpa.nomask.full.off.blocks",
    "bfloat16.sdpa.nomask.full.off.model",
)
MORE = (
    "bfloat16.sdpa.nomask.full.off.blocks",
    "float32.sdpa.nomask.full.off.model",
    "float32+autocast.sdpa.nomask.full.non_reentrant.model",
    "bfloat16.sdpa.nomask.full.non_reentrant.blocks",
    "float32+autocast.sdpa.nomask.full.selective.blocks",
    "bfloat16.sdpa.nomask.full.selective.blocks",
    "bfloat16.sdpa.nomask.lora-bfloat16-0.off.model",
    "float32+autocast.sdpa.nomask.lora-float32-0.off.blocks",
    "bfloat16+autocast.sdpa.nomask.lora-float32-0-attention.non_reentrant.blocks",
)
"""For the first family only."""

_CARD = types.SimpleNamespace(
    name="NVIDIA A100", major=8, minor=0, multi_processor_count=108, warp_size=32, max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536, total_memory=80 << 30, shared_memory_per_block=49152,
    shared_memory_per_block_optin=166912, gcnArchName="",
)  # fmt: skip


@contextlib.contextmanager
def _card() -> Iterator[None]:
    """A card that inductor's scheduler can ask for its properties, and a Triton that it need not call."""
    with (
        patch.object(torch.cuda, "_get_device_properties", lambda device=None: _CARD, create=True),
        patch.object(torch.cuda, "is_available", lambda: True),
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(torch.cuda, "device_count", lambda: 1),
        patch.object(torch.cuda, "_lazy_init", lambda: None),
        patch.object(scheduler, "has_triton", lambda *_: True),
        DebugContext(),
    ):
        yield


def partition(joint: Any, given: Any, **options: Any) -> Any:
    """As `compile_fx.partition_fn` does it."""
    with V.set_fake_mode(detect_fake_mode(given)):
        joint = compile_fx._recursive_joint_graph_passes(joint, skip_invoke_subgraph=True, input_device=torch.device("cuda"))
    return partitioners.min_cut_rematerialization_partition(joint, given, compiler="inductor", **options)


def _bytes(buffer: Any) -> int:
    """The allocator's block of a buffer; 0 where it has none of its own."""
    layout = buffer.layout
    if type(layout).__name__ not in ("FixedLayout", "FlexibleLayout"):
        return 0
    return rounded(int(layout.storage_size()) * layout.dtype.itemsize)


def _workspace(node: Any) -> int:
    """What a kernel allocates for itself while it runs."""
    if getattr(node.node, "op_overload", None) is not torch.ops.aten._scaled_dot_product_flash_attention_backward.default:
        return 0
    query, key = (
        torch.empty([int(n) for n in node.node.inputs[i].get_size()], dtype=node.node.inputs[i].get_dtype(), device="meta")
        for i in (1, 2)
    )
    return _flash_workspace(query, key)


def planned(graph: GraphLowering, sizes: dict[str, int]) -> int:
    """The most that a graph holds beyond its inputs (`sizes`, those that it frees after their last use), by the scheduler's order.

    A buffer that only its own fused kernel reads is never allocated; one that has the size of a buffer which dies in a fused kernel
    takes its place (`decide_inplace_update`).
    """
    nodes = graph.scheduler.nodes
    place = {part.get_name(): index for index, node in enumerate(nodes) for part in node.get_nodes()}
    outputs = set(graph.get_output_names())
    last: dict[str, int] = {}
    made: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for read in node.read_writes.reads:
            last[read.name] = index
        for buffer in node.get_outputs():
            users = [place[user.node.get_name()] for user in buffer.users if user.node.get_name() in place]
            if buffer.get_name() in outputs or any(user != index for user in users) or node.is_extern():
                made[buffer.get_name()] = _bytes(buffer.node)
            last[buffer.get_name()] = max(users, default=index)
    dying: dict[int, list[str]] = defaultdict(list)
    for name, index in last.items():
        if name not in outputs and (name in made or name in sizes):
            dying[index].append(name)
    live = peak = 0
    for index, node in enumerate(nodes):
        fresh = [made[b.get_name()] for b in node.get_outputs() if b.get_name() in made]
        gone = [made.get(name, sizes.get(name, 0)) for name in dying[index]]
        if not node.is_extern():
            for size in list(gone):
                if size in fresh:
                    fresh.remove(size)
                    gone.remove(size)
        live += sum(fresh)
        peak = max(peak, live + _workspace(node))
        live -= sum(gone)
    return peak


def _freed(graph: torch.fx.GraphModule, given: Sequence[Any]) -> dict[str, int]:
    """The inputs that a backward graph frees after their last use, with their bytes: what forward kept, each storage once.

    The gradients that come in live as long as the autograd engine calls the graph.
    """
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    storages = {
        t.untyped_storage()._cdata: (name, rounded(t.untyped_storage().nbytes()))
        for name, t in zip(names, given, strict=True)
        if isinstance(t, torch.Tensor) and not name.startswith(("primals", "tangents"))
    }
    return dict(storages.values())


class Graphs:
    """Makes a compiler of the partitioner's graphs whose results the ledger sees, and whose peaks it is told."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None

    def backend(self) -> Callable[..., Any]:
        """For `torch.compile(backend=...)`."""
        return aot_autograd(
            fw_compiler=functools.partial(self._compile, False),
            bw_compiler=functools.partial(self._compile, True),
            partition_fn=partition,
            decompositions=select_decomp_table(),
        )

    def _compile(self, is_backward: bool, graph: torch.fx.GraphModule, given: Sequence[Any]) -> Callable[[list[Any]], Any]:
        peak = self.ledger.peak if self.ledger is not None else 0
        mode = detect_fake_mode(given)
        plain = torch.fx.GraphModule(graph, torch.fx.Graph())
        plain.graph.output(plain.graph.graph_copy(graph.graph, {}))
        plain.recompile()
        with V.set_fake_mode(mode), _card():
            compile_fx._recursive_post_grad_passes(graph, is_inference=False)
            compile_fx.view_to_reshape(graph)
            lowered = GraphLowering(
                graph, example_inputs=given, shape_env=mode.shape_env, is_inference=False, is_backward=is_backward
            )
            with V.set_graph_handler(lowered):
                lowered.run(*given)
                lowered._update_scheduler()
                extra = planned(lowered, _freed(graph, given) if is_backward else {})

        if self.ledger is not None:  # a second compilation, whose tensors are none of the step's
            self.ledger.peak = peak

        def run(arguments: list[Any]) -> Any:
            ledger = self.ledger
            before = (ledger.live, ledger.peak) if ledger is not None else (0, 0)
            values = list(arguments)
            arguments.clear()
            results = plain(*values)
            if ledger is not None:
                ledger.peak = max(before[1], before[0] + extra)
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def _policy() -> Any:
    """torchtitan's selective checkpointing of operations: attention and every second product are saved (`activation_checkpoint.py`)."""
    seen: Counter[str] = Counter()

    def policy(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        mode = "recompute" if context.is_recompute else "forward"
        if function is torch.ops.aten.mm.default:
            seen[mode] += 1
        saved = function in _SAVED and not (function is torch.ops.aten.mm.default and seen[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


_SAVED = (torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default)


def _compile(model: torch.nn.Module, family: Family, layers: int, regime: str, backend: Any) -> Any:
    """The model with what the regime compiles compiled."""
    if regime.endswith(".model"):
        return torch.compile(model, backend=backend)
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == layers:
            for index, block in enumerate(module):
                if ".selective." in regime:
                    module[index] = checkpoint_wrapper(block, context_fn=_policy, preserve_rng_state=False)
                module[index].compile(backend=backend)
    return model


def step(family: Family, layers: int, name: str) -> tuple[list[int], tuple[Block, ...]]:
    """FIELDS of one step, and what lives between forward and backward."""
    torch._dynamo.reset()
    regime = Regime.parse(name.rpartition(".")[0].replace("selective", "off"))
    model = build(family, layers, regime)
    graphs = Graphs()
    with (
        fake_cuda(),
        plain_positions(family.head == "seq2seq_lm"),
        patch.object(torch.autograd, "grad", gradients),
        patch.object(Ledger, "ignore_compile_internals", classmethod(lambda _: True)),
        patch.object(partitioners, "has_recomputable_rng_ops", lambda _: False),  # there is no state to save, and no dropout
        inductor.patch(joint_graph_constant_folding=False),  # it would compute
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        given = inputs(family, regime, BATCH, SEQUENCE)
        compiled = _compile(model, family, layers, name, graphs.backend())

        def forward() -> Any:
            with torch.autocast("cuda", torch.bfloat16) if regime.autocast else contextlib.nullcontext():
                return compiled(**given)

        with Engine().active():
            forward().loss.backward()  # compiles
        model.zero_grad()
        gc.collect()
        ledger, engine = Ledger(), Engine()
        ledger.ignore([*model.parameters(), *model.buffers()])
        ledger.ignore(t for t in tree_leaves(given) if isinstance(t, torch.Tensor))
        graphs.ledger = ledger
        with ledger, engine.active():
            output = forward()
            loss = output.loss
            alive, forward_peak = ledger.live, ledger.peak
            del output
            gc.collect()
            blocks = tuple(ledger.blocks.values())
            held = ledger.live
            ledger.mark()
            loss.backward()
            backward_peak = ledger.peak
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return [held, alive - held, forward_peak, backward_peak, trainable], blocks


def regimes(family: Family) -> list[str]:
    """The regimes that the family is traced in."""
    if family.name in BLOCKS_ONLY:
        return [name for name in REGIMES if name.endswith(".blocks")]
    return [*REGIMES, *(MORE if family.name == NAMES[0] else ())]


def trace_family(family: Family) -> dict[str, Any]:
    """The record of one family."""
    return {
        "model_type": family.model_type,
        "head": family.head,
        "config": dict(family.config),
        "depth": list(family.depth),
        **({"media": media(family)} if family in MEDIA else {}),
        "regimes": {name: [step(family, depth, name)[0] for depth in DEPTHS] for name in regimes(family)},
    }


def listing(family: Family, name: str) -> None:
    """What one more layer keeps."""
    two, three = (step(family, depth, name)[1] for depth in DEPTHS)
    sizes = {_describe(block): block.nbytes for block in three}
    more = Counter(map(_describe, three))
    more.subtract(map(_describe, two))
    for what, count in more.items():
        if count:
            print(f"{count:+3d} x {sizes.get(what, 0) / (BATCH * SEQUENCE):8.2f} B/token  {what}")


def main(arguments: list[str]) -> None:
    """Trace the named families (all without a name) and write them into the record."""
    if arguments[:1] == ["--list"]:
        listing(BY_NAME[arguments[1]], ".".join(arguments[2:]))
        return
    families = json.loads(RECORD.read_text())["families"] if RECORD.exists() else {}
    for name in arguments or NAMES:
        print(name, flush=True)
        families[name] = trace_family(BY_NAME[name])
    write(
        {
            "versions": {name: version(name).split("+")[0] for name in ("torch", "transformers")},
            "shape": {"batch": BATCH, "sequence": SEQUENCE},
            "fields": list(FIELDS),
            "families": {name: families[name] for name in NAMES if name in families},
        },
        RECORD,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
