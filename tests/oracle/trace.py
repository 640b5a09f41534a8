"""Trace one training step of a real model class on fake CUDA tensors.

`python -m tests.oracle.trace llama` lists what one layer keeps for backward; see `record.py` for the recorded cases.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.utils._pytree import tree_leaves
from transformers import masking_utils
from transformers.models.deberta import modeling_deberta

from .engine import Engine
from .fake_cuda import fake_cuda
from .families import BY_NAME
from .family import BATCH, SEQUENCE, VOCAB, Family
from .inputs import inputs
from .ledger import Block, Ledger, rounded
from .regime import Regime
from .scan_kernels import kernels
from .targets import lora_arguments, modules
from .values import values

os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # it compares counts of image tokens, which fake tensors do not have
gc.freeze()  # what the libraries made stays: walking through it after every step took half of the time

_HEADS = {
    "causal_lm": transformers.AutoModelForCausalLM,
    "masked_lm": transformers.AutoModelForMaskedLM,
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "seq2seq_lm": transformers.AutoModelForSeq2SeqLM,
    "token_classification": transformers.AutoModelForTokenClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering,
    "image_classification": transformers.AutoModelForImageClassification,
    "semantic_segmentation": transformers.AutoModelForSemanticSegmentation,
    "speech_seq2seq": transformers.AutoModelForSpeechSeq2Seq,
    "audio_classification": transformers.AutoModelForAudioClassification,
    "video_classification": transformers.AutoModelForVideoClassification,
    "image_text_to_text": transformers.AutoModelForImageTextToText,
    "audio_text_to_text": transformers.AutoModelForMultimodalLM,
    "contrastive": transformers.AutoModel,
}
_TASKS = {
    "causal_lm": "CAUSAL_LM",
    "sequence_classification": "SEQ_CLS",
    "seq2seq_lm": "SEQ_2_SEQ_LM",
    "token_classification": "TOKEN_CLS",
    "question_answering": "QUESTION_ANS",
}


@dataclass(frozen=True)
class Step:
    """Bytes of one step in allocator blocks (multiples of 512), weights and inputs left out, gradients counted."""

    parameters: int
    trainable: int
    held: int
    """Alive between forward and backward when only the loss is kept; copies of weights left out."""
    weight_copies: int
    """bf16 copies of weights that autocast made and the graph keeps."""
    outputs: int
    """Alive in addition while the caller keeps the model's output object (logits)."""
    forward_peak: int
    backward_peak: int
    blocks: tuple[Block, ...]


@contextlib.contextmanager
def plain_positions(own_masks: bool = False) -> Iterator[None]:
    """What transformers reads off tensor values, which fake tensors do not have.

    Position ids are consecutive (it would mask as if samples were packed); `own_masks`: the only causal mask is the one of
    ones that the decoder of an encoder-decoder makes for itself, and it masks nothing (`_ignore_causal_mask_sdpa`).
    """
    seen, ignores = masking_utils.find_packed_sequence_indices, masking_utils._ignore_causal_mask_sdpa
    span = modeling_deberta.compute_attention_span

    def ignores_ones(padding_mask: Any, *rest: Any, **named: Any) -> bool:
        return bool(ignores(None if own_masks else padding_mask, *rest, **named))

    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    masking_utils._ignore_causal_mask_sdpa = ignores_ones
    # DeBERTa v1 makes a tensor of two lengths and slices with it.
    modeling_deberta.compute_attention_span = lambda query, key, most: min(max(query.size(-2), key.size(-2)), most)
    try:
        yield
    finally:
        modeling_deberta.compute_attention_span = span
        masking_utils.find_packed_sequence_indices, masking_utils._ignore_causal_mask_sdpa = seen, ignores


def build(family: Family, layers: int, regime: Regime) -> torch.nn.Module:
    """The model in training mode, its tensors on the fake device.

    It is built on the meta device (no weight is initialised) and moved there tensor by tensor.
    """
    with torch.device("meta"):
        model = _build(family, layers, regime)
    to_fake_cuda(model)
    return model.train()


def to_fake_cuda(model: torch.nn.Module) -> dict[int, torch.Tensor]:
    """Put every parameter and buffer on the fake device; where each went, by the old one's identity."""
    moved: dict[int, torch.Tensor] = {}
    with fake_cuda():
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in moved:
                        new = torch.empty_like(tensor, device="cuda")
                        is_weight = isinstance(tensor, torch.nn.Parameter)
                        moved[id(tensor)] = torch.nn.Parameter(new, tensor.requires_grad) if is_weight else new
                    tensors[name] = moved[id(tensor)]
    return moved


def named_targets(family: Family) -> dict[str, list[str]]:
    """The names of modules that the record's regimes put LoRA on."""
    sets = [targets for targets in ("attention", "mlp", "ends") if family.adapts(targets)]
    with torch.device("meta"):
        model = _build(family, 2, Regime(attention="eager"))
    return {targets: modules(model, family.model_type, targets) for targets in sets}


def _build(family: Family, layers: int, regime: Regime) -> Any:
    config = transformers.AutoConfig.for_model(family.model_type, **family.at_depth(layers))
    kind = _HEADS[family.head]._model_mapping[type(config)]
    kind = kind[0] if isinstance(kind, tuple) else kind  # DeiT has one with a teacher as well
    model = kind._from_config(config, dtype=getattr(torch, regime.weights), attn_implementation=regime.attention)
    if family.frozen:
        model.get_submodule(family.frozen).requires_grad_(False)
    if regime.checkpointing == "input_grads":
        model.enable_input_require_grads()
    elif regime.checkpointing != "off":
        # the random state of the device cannot be read here; it is no device memory
        model.activation_checkpointing_enable({"use_reentrant": regime.checkpointing == "reentrant", "preserve_rng_state": False})
    if regime.adapter != "none":
        import peft

        lora = peft.LoraConfig(
            r=8,
            lora_alpha=16,
            lora_dropout=regime.dropout,
            task_type=_task(family, regime),
            **lora_arguments(model, family.model_type, regime.targets),
        )
        model = peft.get_peft_model(model, lora)  # adapters on the meta device stay in float32
        if regime.adapter == "bfloat16":
            for name, module in model.named_modules():
                if ".lora_" in name:
                    module.to(torch.bfloat16)
    return model


def _task(family: Family, regime: Regime) -> str | None:
    """peft's task type, which trains the head whole. `all-linear` adapts the heads of tokens, of which peft then makes no copy."""
    adapted = regime.targets == "all-linear" and family.head in ("token_classification", "question_answering")
    return None if adapted else _TASKS.get(family.head)


def step(family: Family, layers: int, regime: Regime, batch: int = BATCH, sequence: int = SEQUENCE) -> Step:
    """Forward, loss and backward of one step."""
    model = build(family, layers, regime)
    with fake_cuda(), plain_positions(family.head == "seq2seq_lm" or (family.makes_mask and not regime.mask)):
        given = inputs(family, regime, batch, sequence)
        ledger, engine = Ledger(), Engine()
        ledger.ignore(model.parameters(), weights=True)
        ledger.ignore([*model.buffers(), *(t for t in tree_leaves(given) if isinstance(t, torch.Tensor))])
        with ledger, values(family, batch), kernels(family.model_type), engine.active():
            autocast = torch.autocast("cuda", torch.bfloat16) if regime.autocast else contextlib.nullcontext()
            with autocast:
                output = model(**given)
            loss = output.loss
            alive = ledger.live
            forward_peak = ledger.peak
            del output
            gc.collect()
            blocks = tuple(ledger.blocks.values())
            outputs = alive - ledger.live
            ledger.mark()
            loss.backward()
            backward_peak = ledger.peak
        copies = sum(rounded(block.nbytes) for block in blocks if block.of_weight)
        return Step(
            parameters=sum(p.numel() for p in model.parameters()),
            trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
            held=sum(rounded(block.nbytes) for block in blocks) - copies,
            weight_copies=copies,
            outputs=outputs,
            forward_peak=forward_peak,
            backward_peak=backward_peak,
            blocks=blocks,
        )


def _describe(block: Block) -> str:
    names = {SEQUENCE: "s", BATCH: "b", BATCH * SEQUENCE: "N", VOCAB: "V"}
    dims = ",".join(names.get(d, str(d)) for d in block.shape)
    copy = " [weight copy]" if block.of_weight else ""
    return f"{str(block.dtype)[6:]:9} ({dims}) {block.operation.removeprefix('aten.')}{copy}"


def layer_blocks(family: Family, regime: Regime) -> list[tuple[str, int, int]]:
    """What one more layer keeps: (description, how many, bytes each)."""
    two, three = (step(family, n, regime).blocks for n in (2, 3))
    sizes = {_describe(block): block.nbytes for block in three}
    more = Counter(map(_describe, three))
    more.subtract(map(_describe, two))
    return [(name, count, sizes.get(name, 0)) for name, count in more.items() if count]


def main(arguments: list[str]) -> None:
    """List what one layer of a family keeps, e.g. `llama autocast=1 weights=float32 mask=1`."""
    family = BY_NAME[arguments[0]]
    options: dict[str, Any] = dict(a.split("=", 1) for a in arguments[1:])
    for key, kind in (("autocast", int), ("mask", int), ("dropout", float)):
        if key in options:
            options[key] = kind(options[key])
    regime = Regime(**options)
    total = 0
    print(family.model_type, regime.name)
    for name, count, nbytes in layer_blocks(family, regime):
        total += count * nbytes
        print(f"{count:+3d} x {nbytes:>9}  {nbytes / (BATCH * SEQUENCE):8.2f} B/token  {name}")
    print(f"one layer: {total} bytes, {total / (BATCH * SEQUENCE):.2f} B/token")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
