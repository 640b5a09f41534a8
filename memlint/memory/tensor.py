"""Shape-only tensors. A `Storage` is a block of GPU memory that lives as long as something refers to it.

The interpreter's reference counting frees a storage at the moment at which PyTorch's would: family pages are written with
the same local variables as the framework's forward code, so the order of allocations and frees falls out of them.
"""

from __future__ import annotations

from collections.abc import Callable

FP32 = 4
"""A dtype is its element size in bytes: 4 = float32, 2 = bfloat16/float16, 1 = bool/uint8/float8, 8 = int64."""
HALF = 2
BYTE = 1
INT64 = 8

COMPUTE, GATHER, REDUCE = range(3)
"""The streams on which sharded frameworks allocate: the computation's, that of all-gathers, that of gradient reductions. The caching
allocator keeps a pool for each."""

BLOCK = 512
"""The caching allocator rounds every request up to this many bytes (torch 2.13, c10/core/AllocatorConfig.h)."""


class Ledger:
    """The record of one program: an event stream of allocations and frees, cut into segments.

    `events` holds `+ident` for an allocation and `-ident` for a free; `sizes[ident]` and `components[ident]` describe the
    block. `segments` are `(first event, phase, layer)`; `layer` is the decoder layer the events belong to, or -1.
    """

    __slots__ = (
        "component", "components", "empties", "empties_steps", "events", "lag", "prefix", "restarts", "segments", "sizes", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: list[int] = []
        self.sizes: list[int] = [0]
        self.components: list[str] = [""]
        self.segments: list[tuple[int, str, int]] = []
        self.component = "activations"
        self.prefix = ""
        self.empties = self.empties_steps = False
        """The framework empties the allocator's cache between loading and the first step, its loop between steps."""
        self.restarts = False
        """It resets the allocator's statistics there, too: the peaks that it tells are those of steps."""
        self.streams: dict[int, int] = {}
        """The stream of each block that is not the computation's."""
        self.lag = 0
        """How many all-gathers, though freed, still wait for the computation's stream before the allocator can hand them out again."""

    def enter(self, phase: str, layer: int = -1) -> None:
        """Start a new segment: the events from here on belong to this phase and layer."""
        self.segments.append((len(self.events), self.prefix + phase, layer))

    def within(self, layer: int) -> int:
        """The events from here on belong to this layer, in the same phase; returns the layer before."""
        _, phase, before = self.segments[-1]
        self.segments.append((len(self.events), phase, layer))
        return before


class Storage:
    """`nbytes` of memory, allocated at construction and freed when the last reference goes."""

    __slots__ = ("ident", "ledger", "nbytes")

    def __init__(self, ledger: Ledger, nbytes: int, component: str = "", stream: int = COMPUTE) -> None:
        sizes = ledger.sizes
        if stream:
            ledger.streams[len(sizes)] = stream
        self.ledger = ledger
        self.nbytes = nbytes
        self.ident = len(sizes)
        sizes.append((nbytes + BLOCK - 1) // BLOCK * BLOCK)
        ledger.components.append(component or ledger.component)
        ledger.events.append(self.ident)

    def resize(self, nbytes: int) -> None:
        """Let it have had another size from the start."""
        self.nbytes = nbytes
        self.ledger.sizes[self.ident] = (nbytes + BLOCK - 1) // BLOCK * BLOCK

    def __del__(self) -> None:
        self.ledger.events.append(-self.ident)


Grads = tuple["Tensor | None", ...]
Rule = Callable[..., Grads]
"""A backward rule: gradients of the node's outputs -> gradients of its inputs (None where not needed)."""


class Tensor:
    """A value: a storage, its number of elements, its element size, and the node that made it (None: needs no gradient).

    `index` is which output of that node this is. A view shares its storage.
    """

    __slots__ = ("index", "itemsize", "node", "numel", "storage")

    def __init__(self, storage: Storage, numel: int, itemsize: int, node: Node | None = None, index: int = 0) -> None:
        self.storage = storage
        self.numel = numel
        self.itemsize = itemsize
        self.node = node
        self.index = index

    @property
    def requires_grad(self) -> bool:
        """Backward reaches it."""
        return self.node is not None


class Parameter(Tensor):
    """A weight. `sink` is its gradient accumulator when it is trained; `grad` the accumulated gradient.

    `name` is the leaf name of the module it belongs to (`q_proj`), `kind` tells linear weights from embeddings, norms and
    biases, `layer` which decoder layer owns it (-1: none), `shape` is (rows, columns) for matrices.
    """

    __slots__ = ("grad", "kind", "layer", "logical", "name", "shape")

    def __init__(self, storage: Storage, numel: int, itemsize: int, name: str, kind: str, layer: int) -> None:
        super().__init__(storage, numel, itemsize)
        self.name = name
        self.kind = kind
        self.layer = layer
        self.grad: Tensor | None = None
        self.shape: tuple[int, ...] = (numel,)
        self.logical = numel
        """Weights it stands for: more than its elements when it is packed."""


class Node:
    """One recorded operation. `nexts` are the (node, output index) that its input gradients flow to."""

    __slots__ = ("consumes", "kernel", "nexts", "outputs", "rule", "saved", "seq", "unpacks")

    def __init__(
        self,
        seq: int,
        rule: Rule | None,
        nexts: tuple[tuple[Node, int] | None, ...],
        saved: tuple[Storage | None, ...] = (),
        outputs: int = 1,
    ) -> None:
        self.seq = seq
        self.rule = rule
        self.nexts = nexts
        self.saved: tuple[Storage | None, ...] | None = saved
        self.outputs = outputs
        self.kernel = False
        """torch.compile does not fuse it with others."""
        self.unpacks = False
        """What it kept is recomputed, and goes as soon as it has been read."""
        self.consumes = False
        """The rule gets the list of gradients itself and takes them out of it, so that they can go while it runs."""


class Anchor(Node):
    """Stands for an input that needs no gradient in front of a block whose own weights do: checkpointing runs it again for their sake."""

    __slots__ = ()


class Sink(Node):
    """The gradient accumulator of a parameter (`AccumulateGrad`); `on_grad` runs after each accumulation."""

    __slots__ = ("on_grad", "parameter")

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(1 << 60, None, ())
        self.parameter = parameter
        self.on_grad: Callable[[Parameter], None] | None = None
