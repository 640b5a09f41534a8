"""Encoders of the BERT line: post-norm blocks with dropout, learned positions, a head per task.

Read in transformers 5.24 `models/bert/modeling_bert.py`, `distilbert`, `electra`, `roberta`, `albert`, `deberta_v2`, `modernbert`.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend, in_dtype_of, mix, scores
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import LANGUAGE
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Parameter, Tensor
from memlint.models.architecture import Architecture

NAMES = {
    "distilbert": ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
    "mpnet": ("q", "k", "v", "o", "intermediate.dense", "output.dense"),
}
"""Linears of a block where they are not called as in BERT."""

DROPOUTS = {"distilbert": ("dropout", "attention_dropout")}
"""(hidden, attention) dropout keys where they are not BERT's."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder with `layers` blocks and the head of the objective."""
    hidden = a.hidden_size or 0
    width = int(a.config.get("embedding_size") or hidden)
    hidden_key, attention_key = DROPOUTS.get(a.model_type, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
    hidden_drop = float(a.dropouts.get(hidden_key, 0.0))
    attention_drop = float(a.dropouts.get(attention_key, 0.0))
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, width)
    places = b.embedding("position_embeddings", a.max_positions or b.machine.sequence, width)
    types = int(a.config.get("type_vocab_size") or 0)
    kinds = b.embedding("token_type_embeddings", types, width) if types else None
    boxes = _boxes(b, a, width) if a.model_type == "layoutlm" else []
    norm = norm_of(b, "LayerNorm", width)
    project = b.linear("embeddings_project", width, hidden, bias=True) if width != hidden else None

    heads = a.heads or 12
    distances: Parameter | None = None
    if a.model_type == "mpnet":
        distances = b.embedding("relative_attention_bias", int(a.config.get("relative_attention_num_buckets") or 32), heads)
    ids = b.buffer(a.max_positions or b.machine.sequence, INT64)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        if boxes:  # its own mask of each key, which is there without padding, too
            m.mask = m.new(m.tokens, words.itemsize)
        names = [
            ops.embedding(m, words, width, m.tokens, ids)
        ]  # they hold what each table says until the sum has been normalised
        # RoBERTa counts positions past the padding of each sample; BERT's are the same for all.
        counted = a.model_type in COUNTED
        rows = m.tokens if counted else m.sequence
        if kinds is not None:
            names.append(ops.embedding(m, kinds, width, m.tokens, ops.token_ids(m, rows), inputs=False))
        names.append(ops.embedding(m, places, width, rows, ops.token_ids(m, rows) if counted else ids, inputs=False))
        corners = ops.token_ids(m, 4 * m.tokens if boxes else 0)
        for index, table in enumerate(boxes):  # the height and the width are worked out
            at = corners if index < 4 else ops.token_ids(m, m.tokens)
            names.append(ops.embedding(m, table, width, m.tokens, at, inputs=False))
        m.named += [corners] if boxes else []
        x = names[0]
        for other in names[1:]:
            x = ops.add(m, x, other)
        x = ops.dropout(m, norm(m, x), hidden_drop)
        if not boxes:
            in_dtype_of(m, x)
        m.shared = [] if distances is None else [_distances(m, distances, heads)]
        return apply(m, project, x) if project is not None else x

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        return x

    if a.model_type == "albert":
        shared = _block(b, a, 0, hidden_drop, attention_drop)
        blocks: list[Block] = [shared] * layers
    else:
        blocks = [_block(b, a, index, hidden_drop, attention_drop) for index in range(layers)]
    b.enter_layer(-1)
    return headed(b, a, Stage(embed, blocks, finish), hidden, width, hidden_drop)


BERT = ("query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense")
"""What BERT calls the linears of a layer."""


def _distances(m: Machine, table: Parameter, heads: int) -> Tensor:
    """MPNet's bias of each pair of positions by their distance, for all blocks and copied for each sample."""
    pairs = m.sequence * m.sequence
    values = ops.embedding(m, table, heads, pairs, ops.token_ids(m, pairs), inputs=False)
    return ops.spread(m, values, m.batch * values.numel)


def _by_distance(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, out: Linear) -> Tensor:
    """MPNet's attention: names hold its queries, keys, values, scores and weights until the output projection is done."""
    weights = ops.scale(m, scores(m, q, k, shape))
    weights = ops.add_in_place(m, weights, m.shared[0])
    if m.mask is not None:
        weights = ops.add(m, weights, m.mask)
    mixed = mix(m, [weights], q.itemsize, v, shape)
    result = apply(m, out, mixed)
    m.weights.clear()  # they are not returned
    return result


def _boxes(b: Builder, a: Architecture, width: int) -> list[Parameter]:
    """LayoutLM's tables of places on the page, in the order in which they are looked up: left, upper, right, lower, height, width
    (transformers 5.24 `models/layoutlm/modeling_layoutlm.py`). Its model has a pooler whatever the head."""
    if b.setup.objective not in POOLED_HEADS_ONLY:
        b.linear("pooler", width, width, bias=True)
    rows = int(a.config.get("max_2d_position_embeddings") or 1024)
    x, y, h, w = (b.embedding(f"{axis}_position_embeddings", rows, width) for axis in "xyhw")
    return [x, y, x, y, h, w]


def norm_of(b: Builder, name: str, width: int) -> Callable[[Machine, Tensor], Tensor]:
    """A layer norm with its bias."""
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _block(b: Builder, a: Architecture, index: int, hidden_drop: float, attention_drop: float) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 0, a.heads or 1
    head_dim = a.head_dim or hidden // heads
    inner = a.intermediate_size or 4 * hidden
    names = NAMES.get(a.model_type, BERT)
    q, k, v, out = (b.linear(name, hidden, hidden, bias=True) for name in names[:4])
    first = norm_of(b, "attention.output.LayerNorm", hidden)
    up, down = b.linear(names[4], hidden, inner, bias=True), b.linear(names[5], inner, hidden, bias=True)
    second = norm_of(b, "output.LayerNorm", hidden)
    act = a.activation or "gelu"
    shape_drop = attention_drop

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shape = Shape(
            m.batch, m.sequence, m.sequence, heads, heads, head_dim, head_dim, shape_drop, causal=False,
            float32_softmax=a.model_type == "layoutlm",
        )  # fmt: skip
        # `core` and `inner_states` stay named as long as the caller's variables hold them in BertAttention and BertLayer.
        if m.shared:
            core, mixed = None, _by_distance(m, apply(m, q, x), apply(m, k, x), apply(m, v, x), shape, out)
        else:
            core = attend(m, apply(m, q, x), apply(m, k, x), apply(m, v, x), shape)
            mixed = apply(m, out, core)
        if a.model_type != "distilbert":
            mixed = ops.dropout(m, mixed, hidden_drop)
        x = first(m, ops.add(m, mixed, x))
        del mixed, core
        inner_states = parts.activation(m, apply(m, up, x), act)
        fed = apply(m, down, inner_states)
        if a.model_type in ("distilbert", "albert"):  # one name for what follows one another
            del inner_states
        if a.model_type != "albert":
            fed = ops.dropout(m, fed, hidden_drop)
        return second(m, ops.add(m, fed, x))

    return block


def headed(b: Builder, a: Architecture, stage: Stage, hidden: int, width: int, hidden_drop: float) -> Model:
    """Masked-LM head over the vocabulary, token head, or a pooled classifier."""
    objective = b.setup.objective
    if objective in LANGUAGE:
        transform = b.linear("transform.dense", hidden, width, bias=True)
        norm = norm_of(b, "transform.LayerNorm", width)
        words = b.parameters[0] if b.setup.tied else None
        head = b.linear("decoder", width, b.setup.vocabulary, bias=True, tied=words)

        def language(m: Machine, x: Tensor) -> Tensor:
            x = norm(m, parts.activation(m, apply(m, transform, x), a.activation or "gelu"))
            return apply(m, head, x)

        return Model([stage], language, head, width, b.setup.vocabulary, causal=False)
    return Model([stage], classifier_of(b, a, hidden, hidden_drop), None, hidden, b.setup.num_labels, causal=False)


def classifier_of(b: Builder, a: Architecture, hidden: int, dropout: float) -> Callable[[Machine, Tensor], Tensor]:
    """Token classification and answer spans: one linear on every position. Else a head on the first position."""
    labels = b.setup.num_labels
    if b.setup.objective in ("token_classification", "question_answering"):
        name = "qa_outputs" if b.setup.objective == "question_answering" else "classifier"
        tokens = b.linear(name, hidden, labels, bias=True)
        if name == "qa_outputs":  # none in front of it, but DistilBERT's own
            dropout = float(a.config.get("qa_dropout", 0.1)) if a.model_type == "distilbert" else 0.0
        return lambda m, x: apply(m, tokens, ops.dropout(m, x, dropout))
    drops_first, name, act = HEADS.get(a.model_type, (False, "pooler", "tanh"))
    dense = b.linear(name, hidden, hidden, bias=True)
    classifier = b.linear("classifier", hidden, labels, bias=True)

    def classify(m: Machine, x: Tensor) -> Tensor:
        x = ops.dropout(m, x, dropout) if drops_first else x
        x = parts.activation(m, apply(m, dense, x), act)
        return apply(m, classifier, ops.dropout(m, x, dropout))

    return classify


POOLED_HEADS_ONLY = {"sequence_classification", "reward", "multiple_choice", "cross_encoder"}
"""Objectives whose head reads one vector per sample."""

COUNTED = {"roberta", "xlm-roberta", "camembert", "mpnet"}
"""Types whose position ids depend on the padding (`create_position_ids_from_input_ids`)."""

HEADS = {
    "roberta": (True, "classifier", "tanh"), "xlm-roberta": (True, "classifier", "tanh"), "camembert": (True, "classifier", "tanh"),
    "electra": (True, "classifier", "gelu"), "mpnet": (True, "classifier", "tanh"), "distilbert": (False, "pre_classifier", "relu"),
    "roberta-prelayernorm": (True, "classifier", "tanh"), "xlm-roberta-xl": (True, "classifier", "tanh"),
    "layoutlmv3": (True, "classifier", "tanh"),
    "esm": (True, "classifier", "tanh"), "deberta-v2": (True, "pooler", "gelu"), "deberta": (True, "pooler", "gelu"),
}  # fmt: skip
"""Heads of sequence classification: (dropout in front, name of the dense layer - PEFT trains all of a module called `classifier` - and
activation); BERT's pooler otherwise."""
