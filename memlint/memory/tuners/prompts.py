"""Methods that train what is put in front of the tokens or of the keys: their parameters (peft 0.21.2 `tuners/<method>/model.py`).

What enters the first layer is lengthened by `memlint.memory.setup`; the rest of a step is as without them.
"""

from __future__ import annotations

from memlint.memory.build import Builder
from memlint.models.architecture import Architecture


def add_prompts(b: Builder, a: Architecture, layers: int) -> None:
    """The trained prompt of the method, and the network that makes it."""
    setup, options = b.setup, b.setup.adapter_options
    tokens = int(options.get("num_virtual_tokens") or setup.adapter_prompt or 0)
    width = int(options.get("token_dim") or a.hidden_size or 0)
    b.enter_layer(-1)
    if setup.adapter == "adaption_prompt":
        length = int(options.get("adapter_len") or setup.adapter_prompt or 0)
        adapted = int(options.get("adapter_layers") or 0) or setup.layers
        for index in range(layers):
            if setup.layers - adapted <= 0 or index >= layers - adapted:
                b.enter_layer(index)
                _make(b, "adaption_prompt", length, width)
                _make(b, "adaption_gate", 1)
        b.enter_layer(-1)
    elif setup.adapter in ("prompt_tuning", "multitask_prompt_tuning", "cpt"):
        _make(b, "embedding", tokens, width)
    elif setup.adapter == "p_tuning":
        inner = int(options.get("encoder_hidden_size") or width)
        _make(b, "embedding", tokens, width)
        if options.get("encoder_reparameterization_type") != "LSTM":
            for rows, columns in ((inner, width), (inner, inner), (width, inner)):
                _make(b, "mlp_head.weight", rows, columns)
                _make(b, "mlp_head.bias", rows)
    elif setup.adapter in ("prefix_tuning", "cartridge"):
        per_layer = 2 * (a.head_dim or width // (a.heads or 1)) * (a.kv_heads or a.heads or 1)
        if options.get("prefix_projection"):
            inner = int(options.get("encoder_hidden_size") or width)
            _make(b, "embedding", tokens, width)
            for rows, columns in ((inner, width), (setup.layers * per_layer, inner)):
                _make(b, "transform.weight", rows, columns)
                _make(b, "transform.bias", rows)
        else:
            _make(b, "embedding", tokens, setup.layers * per_layer)
    elif setup.adapter == "trainable_tokens":
        listed = options.get("token_indices")
        table = next((p for p in b.parameters if p.kind == "embedding"), None)
        count = len(listed) if isinstance(listed, (list, tuple)) else 1
        delta = b.make("trainable_tokens_delta", "adapter", (count, width), setup.adapter_itemsize, True, "adapters")
        if table is not None:
            b.machine.rows[table.storage.ident] = delta


def _make(b: Builder, name: str, *shape: int) -> None:
    if all(shape):
        b.make(name, "adapter", shape, b.setup.adapter_itemsize, True, "adapters")
