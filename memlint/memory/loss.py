"""From the last hidden states to the loss: the head, the float32 copy, cross entropy, and their chunked and fused forms.

`compute` returns the loss in a one-element list, so that the caller can drop it when backward starts. Sources: transformers
`loss/loss_utils.py` (4.44 to 5.24), torch 2.13 `aten/src/ATen/native/LossNLL.cpp`, Liger-Kernel 0.8
`ops/fused_linear_cross_entropy.py`, TRL 1.16 `kernels/chunked_logprob.py`, torchtune 0.4
`modules/loss/ce_chunked_output_loss.py`, litgpt 0.5 `utils.py` `chunked_cross_entropy`.
"""

from __future__ import annotations

from memlint.later import later
from memlint.memory import cache, ops
from memlint.memory.families.model import Model
from memlint.memory.linear import Linear, apply, product
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, INT64, Grads, Storage, Tensor
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.memory import unsloth_loss
else:  # few runs have it
    (unsloth_loss,) = later("memlint.memory", "unsloth_loss")

POOLED = {"sequence_classification", "reward", "image_classification", "audio_classification", "video_classification",
          "multiple_choice", "cross_encoder"}  # fmt: skip
"""Objectives with one row of logits per sample."""


def compute(m: Machine, setup: Setup, model: Model, hidden: Tensor) -> list[Tensor]:
    """The loss of one micro-batch."""
    ledger = m.ledger
    ledger.enter("loss")
    if model.loss is not None:
        return [model.loss(m, hidden)]
    if model.head is None:
        return [_sent_on(m, hidden)]
    if setup.objective in POOLED:
        return [_pooled(m, model, hidden)]
    if setup.objective == "sentence_embedding":
        return [_embedded(m, model, hidden)]
    if model.head_linear is None:
        # Nothing to fuse the loss with (Megatron's parallel head, heads that are a product of parameters).
        return _full(m, setup, model, _returned(m, setup, model.head(m, hidden)))
    if setup.loss_budget:
        return [unsloth_loss.fused_loss(m, setup, model, hidden)]
    if setup.logits == "fused":
        return [fused_linear_cross_entropy(m, setup, model, hidden)]
    if setup.logits == "chunked" and setup.loss_chunk_tokens:
        return _chunked_head(m, setup, model, hidden)
    if setup.logits == "chunked":
        return [_recomputed_chunks(m, setup, model, hidden)]
    if setup.loss_kernel == "unsloth_ce":  # it caps and scales the logits itself (`kernels/cross_entropy_loss.py`, July 2024 on)
        return _full(m, setup, model, apply(m, model.head_linear, hidden))
    # The forward frame of the model holds the hidden states until the loss is there, but not the logits.
    return _full(m, setup, model, _returned(m, setup, model.head(m, hidden)))


def _sent_on(m: Machine, hidden: Tensor) -> Tensor:
    """What a stage without the head does with its result: sends it on, and receives a gradient of its size."""
    numel, itemsize = hidden.numel, hidden.itemsize

    def rule(g: Tensor) -> Grads:
        return (m.new(numel, itemsize),)

    return m.tape.record(m.new(1, FP32), (hidden,), rule)


def _embedded(m: Machine, model: Model, hidden: Tensor) -> Tensor:
    """The mean over all tokens of a text in place of a head (sentence-transformers 5.1 `models/Pooling.py`): their mask is spread over
    the states. The similarities of a batch are few numbers."""
    m.named.append(hidden)  # `token_embeddings` among the features, which the trainer holds until the loss is there
    spread = m.new(hidden.numel, hidden.itemsize)
    return _sent_on(m, ops.scale(m, ops.sum_last(m, ops.mul(m, hidden, spread), m.batch * model.hidden)))


def _returned(m: Machine, setup: Setup, logits: Tensor) -> Tensor:
    """The logits as the loop gets them."""
    return ops.cast(m, logits, FP32) if setup.stack.converts_outputs else logits


def _pooled(m: Machine, model: Model, hidden: Tensor) -> Tensor:
    """A classifier on one position per sample: its logits are negligible, its gradient is the full hidden size."""
    pooled = hidden if model.reads_all else ops.narrow(m, hidden, m.batch * model.hidden)
    del hidden
    logits = model.head(m, pooled) if model.head is not None else pooled
    if logits.numel > m.batch * model.classes > 0:  # a decoder scores every token and takes one of each sample
        logits = ops.gather(m, logits, m.new(2 * m.batch, INT64), m.batch * model.classes)
    return cross_entropy(m, ops.cast(m, logits, FP32), m.batch)


def _full(m: Machine, setup: Setup, model: Model, logits: Tensor) -> list[Tensor]:
    """Cross entropy over materialised logits. `kept` is what the model's output object holds during backward."""
    if setup.logits_mean:
        numel = logits.numel
        kept = [ops.cast(m, logits, FP32) if setup.stack.upcasts_in_model else logits]
        del logits
        itemsize = kept[0].itemsize
        out = m.new(1, itemsize)
        value = m.tape.record(out, (kept[0],), lambda g: (m.new(numel, itemsize),))
        return [value, *kept]  # a script that takes the mean of the logits has the model's output in a variable
    if setup.ce_chunk_tokens:
        return [_chunked_entropy(m, logits, setup.ce_chunk_tokens, model.classes)]
    output = logits
    if setup.loss_upcast and model.upcasts and "cross_entropy" not in setup.kernels:
        wide = ops.cast(m, logits, FP32)
        if setup.stack.upcasts_in_model:
            output = wide
    else:
        wide = logits
    del logits
    if setup.stack.shifts_logits and setup.objective == "causal_lm" and m.batch > 1:
        shifted = ops.copy(m, wide)
        value = entropy_kernel(m, setup, shifted, model.classes)
        del shifted
    else:
        value = entropy_kernel(m, setup, wide, model.classes)
    del wide
    if setup.outputs_fp32 and output.itemsize != FP32:
        output = ops.cast(m, output, FP32)
    if setup.outputs_fp32 and setup.stack.caches_tuples:
        cache.widen(m)
    if setup.sharding.clones_outputs:
        output = ops.copy(m, output)
    return [value, output] if setup.keeps_outputs else [value]


def entropy_kernel(m: Machine, setup: Setup, logits: Tensor, classes: int) -> Tensor:
    """The cross-entropy kernel in use, over logits of `classes` columns."""
    rows = logits.numel // max(1, classes)
    if "cross_entropy" in setup.kernels:
        return compiled_cross_entropy(m, logits, rows)
    if setup.loss_kernel in ("triton_ce", "unsloth_ce", "te_fused_ce"):
        return triton_cross_entropy(m, logits, rows)
    return cross_entropy(m, logits, rows)


def cross_entropy(m: Machine, logits: Tensor, rows: int) -> Tensor:
    """`F.cross_entropy`: `log_softmax` keeps its result; backward makes the gradient of nll, then that of log_softmax."""
    log_probabilities = ops.softmax(m, logits, logits.itemsize)
    del logits
    if m.autocast:
        log_probabilities = ops.cast(m, log_probabilities, FP32)  # `nll_loss` is on autocast's float32 list
    out = m.new(1, log_probabilities.itemsize)
    numel, itemsize = log_probabilities.numel, log_probabilities.itemsize
    saved = (log_probabilities.storage,)
    return m.tape.record(out, (log_probabilities,), lambda g: (m.new(numel, itemsize),), saved)


def compiled_cross_entropy(m: Machine, logits: Tensor, rows: int) -> Tensor:
    """Cross entropy under torch.compile: keeps the logits as they came and a float32 per row; one gradient in backward."""
    out = m.new(rows, FP32)
    logsumexp = Storage(m.ledger, rows * FP32)
    numel, itemsize = logits.numel, logits.itemsize
    return m.tape.record(out, (logits,), lambda g: (m.new(numel, itemsize),), (logits.storage, logsumexp), kernel=True)


def triton_cross_entropy(m: Machine, logits: Tensor, rows: int) -> Tensor:
    """A Triton cross entropy (Unsloth `kernels/cross_entropy_loss.py`): keeps the logits and writes the gradient into them."""
    out = m.new(rows, FP32)
    logsumexp = Storage(m.ledger, rows * FP32)
    numel, itemsize, storage = logits.numel, logits.itemsize, logits.storage
    box = [storage]
    del storage

    def rule(g: Tensor) -> Grads:
        return (Tensor(box.pop(), numel, itemsize),)

    return m.tape.record(out, (logits,), rule, (logits.storage, logsumexp))


def _chunked_entropy(m: Machine, logits: Tensor, chunk: int, classes: int) -> Tensor:
    """litgpt's `chunked_cross_entropy` over whole logits: log-softmax results of all chunks stay until backward."""
    pieces = max(1, -(-logits.numel // classes // chunk))
    parts = ops.split(m, logits, tuple(logits.numel // pieces for _ in range(pieces)))
    losses = [cross_entropy(m, part, chunk) for part in parts]
    del parts, logits
    return _sum(m, losses)


def _chunked_head(m: Machine, setup: Setup, model: Model, hidden: Tensor) -> list[Tensor]:
    """The head applied to chunks of tokens (litgpt): logits per chunk, all kept until backward when `loss_keeps_chunks`."""
    assert model.head is not None
    rows = hidden.numel // model.hidden
    pieces = max(1, -(-rows // setup.loss_chunk_tokens))
    parts = ops.split(m, hidden, tuple(hidden.numel // pieces for _ in range(pieces)))
    del hidden
    made = [model.head(m, part) for part in parts]
    logits = [_returned(m, setup, piece) for piece in made]  # the whole list is converted once the model has returned it
    del made
    losses = []
    kept = []
    for piece in logits:
        losses.append(cross_entropy(m, ops.cast(m, piece, FP32) if setup.loss_upcast else piece, setup.loss_chunk_tokens))
        if setup.loss_keeps_chunks:
            kept.append(piece)
    del parts, logits, piece
    return [_sum(m, losses), *kept]


def _recomputed_chunks(m: Machine, setup: Setup, model: Model, hidden: Tensor) -> Tensor:
    """torchtune's `CEWithChunkedOutputLoss` and TRL's chunked loss: logits in n pieces, float32 for one piece at a time."""
    if setup.stack.framework == "trl":
        return fused_linear_cross_entropy(m, setup, model, hidden)
    pieces = max(1, setup.loss_chunks or 8)
    parts = ops.split(m, hidden, tuple(hidden.numel // pieces for _ in range(pieces)))
    del hidden
    assert model.head is not None
    logits = [model.head(m, part) for part in parts]
    del parts
    if "cross_entropy" in setup.kernels:
        losses = [compiled_cross_entropy(m, piece, piece.numel // model.classes) for piece in logits]
    else:
        losses = [cross_entropy(m, ops.cast(m, piece, FP32), piece.numel // model.classes) for piece in logits]
    del logits
    return _sum(m, losses)


def _sum(m: Machine, losses: list[Tensor]) -> Tensor:
    total = losses[0]
    for value in losses[1:]:
        total = ops.add(m, total, value)
    return total


def fused_linear_cross_entropy(m: Machine, setup: Setup, model: Model, hidden: Tensor) -> Tensor:
    """Head and cross entropy in one: logits exist for one chunk of tokens only, gradients are made in forward (Liger).

    Liger's chunk: tokens / ceil(V / H) rounded up to a power of two. The hidden gradient (input dtype) and the head's
    gradient (float32 accumulator when the head is trained) live from forward to backward.
    """
    head: Linear | None = model.head_linear
    assert head is not None
    classes, width = model.classes, model.hidden
    rows = hidden.numel // width
    factor = max(1, -(-classes // width))
    chunk = 1 << max(0, (-(-rows // factor) - 1).bit_length())
    itemsize = 2 if m.autocast else hidden.itemsize
    trained = head.weight.node is not None
    cut = setup.loss_kernel == "cut_cross_entropy"
    grad_hidden = Storage(m.ledger, 0 if cut else hidden.numel * itemsize)
    grad_weight = Storage(m.ledger, 0 if cut or not trained else classes * width * head.weight.itemsize)
    if not cut:
        logits = m.new(min(chunk, rows) * classes, itemsize)
        if trained:
            m.transient(classes * width, itemsize)
        del logits
    out = m.new(rows, FP32)
    numel, back, wnumel, wsize = hidden.numel, hidden.itemsize, head.weight.numel, head.weight.itemsize
    need_hidden = hidden.node is not None

    def rule(g: Tensor) -> Grads:
        return (
            m.new(numel, back) if need_hidden and (cut or back != itemsize) else _reuse(m, numel, back),
            m.new(wnumel, wsize) if trained else None,
        )

    return m.tape.record(out, (hidden, head.weight), rule, (hidden.storage, grad_hidden, grad_weight))


def _reuse(m: Machine, numel: int, itemsize: int) -> Tensor:
    """The gradient that forward made already: handed on without a new allocation of note."""
    return m.new(numel, itemsize)


__all__ = ["compute", "product"]
