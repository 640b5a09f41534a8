"""What forward code runs on: one simulated rank with its tape, the batch's shape, and what every layer looks at."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory.autograd import Tape
from memlint.memory.tensor import Ledger, Storage, Tensor


class Machine:
    """The state of one simulated rank.

    `autocast` is the element size that autocast computes in (2), or 0 when it is off. Casts of trained float32 leaf weights
    are cached until the outermost autocast region ends (torch 2.13, aten/src/ATen/autocast_mode.cpp `cached_cast`); every
    other cast is made anew at each use.
    """

    def __init__(self, ledger: Ledger, tape: Tape, batch: int, sequence: int) -> None:
        self.ledger = ledger
        self.tape = tape
        self.batch = batch
        self.sequence = sequence
        self.attention: str = "sdpa"
        self.exchange: str = ""
        """How ranks that hold parts of the same sequences see each other's: a2a, gather or ring; empty: they do not."""
        self.context: int = 1
        """Such ranks."""
        self.split: int = 1
        """Tensor-parallel ranks that the residual stream's positions are divided over (sequence parallelism)."""
        self.autocast: int = 0
        self.float16: bool = False
        """What is half is float16, not bfloat16."""
        self.kernels: frozenset[str] = frozenset()
        self.compiled: str = ""
        """What torch.compile covers: the blocks, each by itself, or the model, its own loss included; empty: nothing."""
        self.wide_dropout_masks: bool = False
        self.written_gelu: bool = False
        self.no_flash: bool = False
        """SDPA has no fused kernel for these inputs and takes the math path."""
        self.float32_math: bool = True
        """The math path raises half inputs to float32."""
        self.repeats_kv: bool = False
        """The framework expands K and V to all heads before the attention kernel."""
        self.input_grads: bool = False
        """The output of a frozen embedding is made to need a gradient (`enable_input_require_grads`)."""
        self.keeps_quantised_inputs: bool = False
        """bitsandbytes up to 0.43.1 keeps a 4-bit layer's input as an attribute of its graph node (`ctx.tensors = (A, B)` in
        `autograd/_functions.py`; 0.43.2 keeps None): it lives as long as the loss does, and checkpointing does not see it."""
        self.keeps_unpacked: bool = False
        """GPTQ's weights are unpacked by torch's own operations, and autograd keeps what is multiplied with."""
        self.training: bool = True
        """Dropout is on."""
        self.has_graph: bool = True
        """Graph nodes exist even where the tape records nothing: the forward pass of non-reentrant checkpointing."""
        self.held: list[tuple[int, Storage]] = []
        """(layer, storage) of such inputs."""
        self.kept: list[Storage] | None = None
        """Outputs that selective checkpointing keeps, while a block runs forward under it."""
        self.keeps_mixed: bool = True
        """It keeps the results of attention kernels, too."""
        self.products: int = 0
        """Matrix products so far in that block."""
        self.partition: list[Storage] = []
        """ZeRO-2: the gradients of this rank's partition that the micro-batches so far have added up to."""
        self.outputs: list[Tensor] = []
        """What a loop's names still hold of the step before: its model's outputs, until the next step's take their place."""
        self.rows: dict[int, Tensor] = {}
        """Trained rows of embedding tables, by the table's ident: the table is copied with them put in wherever it is used."""
        self.tuned: dict[int, Callable[[Machine, Tensor, Tensor, bool], Tensor]] = {}
        """Adapters of embedding tables, by the table's ident: (machine, the table's result, ids, the module scales its result)."""
        self.casts: dict[int, tuple[int, Tensor]] = {}
        """The cached casts by their weight's ident: (layer of the weight, cast)."""
        self.weights: list[Tensor] = []
        """Eager attention's probabilities: the block's local variable (`hidden_states, _ = self.self_attn(...)`) holds them to its end."""
        self.names_weights: bool = False
        """The model's loop holds what a block returned, these included, until the next one has run."""
        self.arguments: list[Tensor] = []
        """Masks that reentrant checkpointing's nodes hold as arguments by name, which their graph lets go of at its end only."""
        self.returned: list[Tensor] = []
        """Such weights."""
        self.embedded: list[Tensor] = []
        """What local variables hold of the embedding until the stack has run: the rows of tokens, those of positions."""
        self.named: list[Tensor] = []
        """What local variables of the model and its output hold until the loss is there: an encoder's last states, image features."""
        self.caches: bool = False
        """The model returns keys and values (`memlint.memory.cache`)."""
        self.cached: list[tuple[int, Storage, int]] = []
        """(layer, storage, elements) of such."""
        self.mask: Tensor | None = None
        self.beside: Tensor | None = None
        """The second stream of blocks that have two, text beside latents: what a block reads and replaces beside its input and result."""
        self.shared: list[Tensor] = []
        """What the blocks of a stage read beside their input: a position bias that all of them add, the mask of the other side."""

    @property
    def tokens(self) -> int:
        """Positions of one micro-batch, padding included."""
        return self.batch * self.sequence

    def new(self, numel: int, itemsize: int) -> Tensor:
        """A fresh tensor outside the graph."""
        return self.tape.new(numel, itemsize)

    def product(self, out: Tensor) -> None:
        """A matrix product of a block: selective checkpointing keeps every second one (torchtitan `activation_checkpoint.py`)."""
        if self.kept is not None:
            self.products += 1
            if self.products % 2:
                self.kept.append(out.storage)

    def mixed(self, *storages: Storage) -> None:
        """The results of an attention kernel: selective checkpointing keeps those that it knows."""
        if self.kept is not None and self.keeps_mixed:
            self.kept.extend(storages)

    def transient(self, numel: int, itemsize: int) -> None:
        """Allocate and free at once: a temporary inside a kernel."""
        if numel:
            self.tape.new(numel, itemsize)

    def release(self, count: int | None = None) -> None:
        """Drop the oldest `count` held inputs (all of them by default), as their graph's loss goes."""
        count = len(self.held) if count is None else count
        gone, self.held = self.held[:count], self.held[count:]
        while gone:
            self.ledger.enter("release", gone[0][0])
            gone.pop(0)
        self.ledger.enter("release")

    def end_autocast(self) -> None:
        """Leave the autocast region: the cached weight casts go, unless the graph saved them."""
        for ident, layer in [(ident, layer) for ident, (layer, _) in self.casts.items()]:
            self.ledger.enter("release", layer)
            del self.casts[ident]
        self.ledger.enter("release")


def start(batch: int, sequence: int) -> Machine:
    """A machine with an empty ledger."""
    ledger = Ledger()
    return Machine(ledger, Tape(ledger), batch, sequence)
