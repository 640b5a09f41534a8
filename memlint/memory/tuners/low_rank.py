"""Tuners that add a product of two thin matrices to a linear's output."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import algebra, ops
from memlint.memory.autograd import View
from memlint.memory.build import Builder
from memlint.memory.linear import Pair, base, product, unpacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Parameter, Tensor
from memlint.memory.tuners.site import BNB, Forward, Site, base_to_add_to


def embedding(b: Builder, name: str, rows: int, width: int) -> Callable[[Machine, Tensor, Tensor, bool], Tensor]:
    """`lora/layer.py` `Embedding`: a table of `rank` columns and a product, both read transposed, so that their gradients lie otherwise
    than they do and are copied. There is no dropout. (DoRA's norm of the table is not counted.)"""
    rank = b.setup.lora_rank
    a = b.make(f"{name}.lora_embedding_A", "adapter", (rank, rows), b.setup.adapter_itemsize, True, "adapters")
    up = b.make(f"{name}.lora_embedding_B", "adapter", (width, rank), b.setup.adapter_itemsize, True, "adapters")

    def forward(m: Machine, result: Tensor, ids: Tensor, scaled: bool) -> Tensor:
        dtype = result.itemsize
        low = m.new(result.numel // width * rank, a.itemsize)
        low = m.tape.record(low, (a,), lambda g: (_turned(m.new(a.numel, a.itemsize)),), (ids.storage,), kernel=True)
        view = m.tape.record(Tensor(up.storage, up.numel, up.itemsize), (up,), lambda g: (_turned(g),))
        output = ops.scale(m, ops.matmul(m, low, view, result.numel))
        del low, view
        if scaled:
            output = ops.scale(m, output)
        return ops.cast(m, ops.add(m, result, output), dtype)

    return forward


def _turned(grad: Tensor) -> Tensor:
    """A gradient in another layout than its parameter's, which does not take it as it is (`accumulate_grad.h`)."""
    return View(View(grad))


LORA_FA = {"lora-fa", "lora_fa"}
"""The method and the optimizer that train B only (peft 0.21.2 `optimizers/lorafa.py`)."""

ENABLES_AGAIN = {"peft_method_comparison"}
"""Loops that evaluate under `disable_adapter`, whose end makes every adapter weight trained again (peft 0.21.2 `tuners_utils.py`,
`enable_adapters`): LoRA-FA's A then gets a gradient that no optimizer uses."""


def lora(site: Site) -> Forward:
    """`lora/layer.py` `Linear`, `lora/bnb.py`, and the variants of `lora/variants.py`: DoRA, MiCA (B frozen) and BD-LoRA."""
    if site.option("use_dora", False):
        return dora(site)
    if isinstance(site.option("use_bdlora", None), Mapping):
        return _block_diagonal(site)
    layer = site.layer
    a, b, bias = _pair(site)
    rank, p = a.shape[0] // site.copies, site.dropout("lora_dropout")
    packed = layer.quantised is not None and layer.quantised.method in BNB
    if bias is None and site.copies == 1 and (not p or site.builder.setup.stack.framework == "axolotl"):
        layer.pair = Pair(a, b, p)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base_to_add_to(m, layer, x)
        dtype = result.itemsize
        if not (packed and m.autocast):
            x = ops.cast(m, x, a.itemsize)
        inner = ops.dropout(m, x, p)
        low = product(m, inner, a, None, layer.fin, rank)
        del inner
        output = ops.scale(m, product(m, low, b, bias, rank, layer.fout))
        del low
        if packed and not m.autocast:
            output = ops.cast(m, output, dtype)
        result = ops.add(m, result, output)
        del output
        return ops.cast(m, result, dtype)

    return forward


def lora_fa(site: Site) -> Forward:
    """LoRA whose A stays as it is."""
    return lora(site)


def mica(site: Site) -> Forward:
    """LoRA whose B stays as it is."""
    return lora(site)


def qalora(site: Site) -> Forward:
    """`QALoraLinearVariant`: A sees the input's averages over groups."""
    layer, group = site.layer, int(site.option("qalora_group_size", 16))
    rank, p, pooled = site.rank(8), site.dropout("lora_dropout"), layer.fin // group
    a, b = site.parameter("lora_A", rank, pooled), site.parameter("lora_B", layer.fout, rank)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        x = ops.dropout(m, ops.cast(m, x, a.itemsize), p)
        means = ops.scale(m, ops.mean_last(m, x, group))
        low = product(m, means, a, None, pooled, rank)
        result = ops.add(m, result, ops.scale(m, product(m, low, b, None, rank, layer.fout)))
        return ops.cast(m, result, dtype)

    return forward


def _pair(site: Site) -> tuple[Parameter, Parameter, Parameter | None]:
    """`lora_A` (r x in), `lora_B` (out x r) and the bias of `lora_bias`."""
    rank, method = site.rank(8), site.builder.setup.adapter
    fixed_a = bool({method, site.builder.setup.optimizer} & LORA_FA) and site.builder.setup.stack.framework not in ENABLES_AGAIN
    fixed_b = method == "mica" or site.option("init_lora_weights", True) == "mica"
    a = site.parameter("lora_A", rank, site.fin, trained=not fixed_a)
    b = site.parameter("lora_B", site.fout, rank, trained=not fixed_b)
    return a, b, site.parameter("lora_B.bias", site.fout) if site.option("lora_bias", False) else None


def dora(site: Site) -> Forward:
    """`lora/dora.py` `DoraLinearLayer`: the norm of the merged weight is computed in every forward pass, from B's and A's product with an
    identity matrix and the base weight in the adapter's dtype; the magnitude is trained."""
    layer, p = site.layer, site.dropout("lora_dropout")
    a, b, bias = _pair(site)
    magnitude = site.parameter("lora_magnitude_vector", layer.fout)
    rank, packed = a.shape[0] // site.copies, layer.quantised is not None and layer.quantised.method in BNB

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base_to_add_to(m, layer, x)
        dtype = result.itemsize
        if not (packed and m.autocast):
            x = ops.cast(m, x, a.itemsize)
        dropped = ops.dropout(m, x, p)
        result = ops.add(m, result, scaled(m, dropped, result if dropped is x else None))
        result = ops.cast(m, result, dtype)
        del x, dropped
        return result

    def update(m: Machine) -> Tensor:
        """`lora_B(lora_A(torch.eye(in)))`."""
        low = product(m, m.new(layer.fin * layer.fin, a.itemsize), a, None, layer.fin, rank)
        return product(m, low, b, bias, rank, layer.fout)

    def norm(m: Machine, weight: Tensor, change: Tensor) -> Tensor:
        """The row norms of `weight + scaling * change`, without gradient."""
        scaled_change = m.new(change.numel, change.itemsize)
        merged = m.new(change.numel, max(weight.itemsize, change.itemsize))
        del scaled_change
        out = m.new(layer.fout, merged.itemsize)
        del merged
        return ops.cast(m, out, weight.itemsize)

    def scaled(m: Machine, x: Tensor, output: Tensor | None) -> Tensor:
        change = ops.cast(m, update(m), x.itemsize)
        weight = ops.cast(m, unpacked(m, layer), x.itemsize)
        ratio = algebra.divide(m, magnitude, norm(m, weight, change))
        result = product(m, product(m, x, a, None, layer.fin, rank), b, bias, rank, layer.fout)
        if output is None:
            output = product(m, x, weight, None, layer.fin, layer.fout)
        elif layer.bias is not None:
            output = ops.add(m, output, ops.scale(m, layer.bias))
        left = ops.mul(m, ops.shift(m, ratio), output)
        right = ops.scale(m, ops.mul(m, ratio, result))
        out = ops.add(m, left, right)
        del change, weight
        return out

    return forward


def _block_diagonal(site: Site) -> Forward:
    """`BdLoraLinearVariant`: of A or of B only blocks on the diagonal; the layer's name decides which."""
    layer, config, rank = site.layer, site.option("use_bdlora", {}), site.rank(8)
    blocks, p = int(config.get("nblocks") or 1), site.dropout("lora_dropout")
    first = any(name in layer.name for name in config.get("target_modules_bd_a") or ())
    second = not first and any(name in layer.name for name in config.get("target_modules_bd_b") or ())
    a = site.parameter("lora_A", rank, layer.fin // (blocks if first else 1))
    b = site.parameter("lora_B", layer.fout, rank // (blocks if second else 1))

    def times(m: Machine, x: Tensor, weight: Parameter, fin: int, fout: int, split: bool) -> Tensor:
        if not split:
            return product(m, x, weight, None, fin, fout)
        return ops.copy(m, blockwise(m, x, weight, x.numel // fin * fout))

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        x = ops.cast(m, ops.dropout(m, x, p), a.itemsize)
        low = times(m, x, a, layer.fin, rank, first)
        output = ops.scale(m, times(m, low, b, rank, layer.fout, second))
        return algebra.add_into(m, result, output)

    return forward


def blockwise(m: Machine, x: Tensor, weight: Tensor, numel: int) -> Tensor:
    """`torch.einsum` of a batch of small products: the gradients come out in the order of the batch and are copied into their own."""
    return ops.matmul(m, algebra.reordered(m, x), algebra.reordered(m, weight), numel)


def adalora(site: Site) -> Forward:
    """`adalora/layer.py` `SVDLinear` and `adalora/bnb.py`: A times the singular values, divided by the number of ranks; added in place.

    That number is trained, too, where peft 0.21 has raised it to float32 (`tuners_utils.py`, `cast_adapter_dtype`, makes a new parameter).
    """
    layer, p = site.layer, site.dropout("lora_dropout")
    rank = int(site.option("init_r", 0) or site.builder.setup.adapter_rank or 12)
    setup = site.builder.setup
    counts = setup.stack.peft >= (0, 21) and setup.weight_itemsize < setup.adapter_itemsize
    a, e = site.parameter("lora_A", rank, layer.fin), site.parameter("lora_E", rank, 1)
    b, ranks = site.parameter("lora_B", layer.fout, rank), site.parameter("ranknum", 1, trained=counts)
    packed = layer.quantised is not None and layer.quantised.method in BNB

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        if packed:
            result = ops.copy(m, result)
        number = ops.shift(m, ranks)
        if not (packed and m.autocast):
            x = ops.cast(m, x, a.itemsize)
        low = product(m, ops.dropout(m, x, p), ops.mul(m, a, e), None, layer.fin, rank)
        output = algebra.divide(m, ops.scale(m, product(m, low, b, None, rank, layer.fout)), number)
        if packed and not m.autocast:
            output = ops.cast(m, output, dtype)
        del low
        return algebra.add_into(m, result, output)

    return forward


def deft(site: Site) -> Forward:
    """`deft/layer.py`: float32 throughout; what the projector spans is taken off the output, and R's part is put on.

    `decomposition_method` is "relu" by default since peft 0.20; 0.19 had "qr".
    """
    site.only()
    layer, rank, p = site.layer, site.rank(8), site.dropout("deft_dropout")
    stack = site.builder.setup.stack
    qr = site.option("decomposition_method", "qr" if stack.peft < (0, 20) else "relu") == "qr"
    projector = site.parameter("deft_P", layer.fout, rank)
    injected = None if site.option("para", False) else site.parameter("deft_R", rank, layer.fin)

    def project(m: Machine) -> tuple[Tensor, Tensor]:
        wide = ops.cast(m, projector, FP32)
        if qr:
            q = algebra.orthogonal(m, wide, layer.fout, rank)
            return q, q
        return wide, ops.unary(m, wide, keeps="output")

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        out = base(m, layer, x)
        result = ops.cast(m, out, FP32)
        plain = result if layer.bias is None else ops.add(m, result, ops.scale(m, ops.cast(m, layer.bias, FP32)))
        x = ops.cast(m, x, FP32)
        left, right = project(m)
        correction = product(m, product(m, plain, right, None, layer.fout, rank), left, None, rank, layer.fout)
        result = ops.subtract(m, result, correction)
        if injected is not None:
            scaled = ops.scale(m, ops.cast(m, injected, FP32))
            low = product(m, ops.dropout(m, x, p), scaled, None, layer.fin, rank)
            result = ops.add(m, result, product(m, low, left, None, rank, layer.fout))
        result = ops.cast(m, result, dtype)
        del out, plain, correction
        return result

    return forward


def delora(site: Site) -> Forward:
    """`delora/layer.py`: the input is weighted by the base weight's column norms; both factors are normalised; one trained strength."""
    site.only()
    layer, rank, p = site.layer, site.rank(8), site.dropout("module_dropout")
    a, b = site.parameter("delora_A", rank, layer.fin), site.parameter("delora_B", layer.fout, rank)
    strength, norms = site.parameter("delora_lambda", 1), site.buffer(layer.fin * site.copies, a.itemsize)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        out = base(m, layer, x)
        added = m.new(out.numel, out.itemsize)
        dropped = ops.dropout(m, x, p)
        h = product(m, ops.mul(m, dropped, norms), a, None, layer.fin, rank)
        first, second = (ops.clamp(m, algebra.norm(m, factor, rank)) for factor in (a, b))
        scaling = algebra.divide(m, ops.scale(m, strength), ops.mul(m, first, second))
        h = ops.mul(m, h, scaling)
        h = product(m, h, b, None, rank, layer.fout)
        added = algebra.add_into(m, added, h)
        result = ops.cast(m, ops.add(m, out, ops.cast(m, added, out.itemsize)), dtype)
        del out, added, h, dropped
        return result

    return forward


def osf(site: Site) -> Forward:
    """`osf/layer.py`: everything but the `effective_rank` largest singular triples is trained; the difference to what it was is added.

    For square and tall weights U's high part is left out of the buffers, for square and wide ones V's.
    """
    site.only()
    layer = site.layer
    small, size = min(layer.fin, layer.fout), site.builder.setup.adapter_itemsize
    high = min(int(site.option("effective_rank", None) or small // 2), small)
    low = small - high
    u, s, v = (site.parameter(f"osf_svd_params.{n}", *shape) for n, shape in
               (("U_low", (layer.fout, low)), ("S_low", (low,)), ("V_low", (low, layer.fin))))  # fmt: skip
    initial = [site.buffer(t.numel, size) for t in (u, s, v)]
    if layer.fout > layer.fin:
        initial.append(site.buffer(layer.fout * high * site.copies, size))
    if layer.fin > layer.fout:
        initial.append(site.buffer(layer.fin * high * site.copies, size))

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        left = ops.concat(m, (ops.mul(m, u, s), ops.scale(m, ops.mul(m, initial[0], initial[1]))))
        right = ops.concat(m, (v, initial[2]))
        x = ops.cast(m, x, left.itemsize)
        h = product(m, x, right, None, layer.fin, 2 * low)
        delta = product(m, h, left, None, 2 * low, layer.fout)
        result = ops.add(m, result, ops.cast(m, delta, dtype))
        del left, right, h, delta
        return result

    return forward


def gralora(site: Site) -> Forward:
    """`gralora/layer.py`: `gralora_k` blocks of columns, whose low-rank values are dealt to as many blocks of rows; `hybrid_r` is a plain
    pair beside them. Added in place."""
    site.only()
    layer, rank, blocks = site.layer, site.rank(32), int(site.option("gralora_k", 2))
    hybrid, p = int(site.option("hybrid_r", 0)), site.dropout("gralora_dropout")
    a, b = site.parameter("gralora_A", rank, layer.fin), site.parameter("gralora_B", layer.fout, rank)
    plain = (
        (site.parameter("gralora_A_general", hybrid, layer.fin), site.parameter("gralora_B_general", layer.fout, hybrid))
        if hybrid
        else None
    )

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        rows = x.numel // layer.fin
        first = algebra.reordered(m, ops.dropout(m, ops.cast(m, x, a.itemsize), p))
        low = ops.copy(m, ops.matmul(m, first, a, rows * blocks * rank))
        del first
        output = ops.copy(m, ops.matmul(m, algebra.reordered(m, low), b, rows * layer.fout))
        result = algebra.add_into(m, result, ops.scale(m, ops.cast(m, output, result.itemsize)))
        if plain is not None:
            inner = ops.dropout(m, ops.cast(m, x, a.itemsize), p)
            more = product(m, product(m, inner, plain[0], None, layer.fin, hybrid), plain[1], None, hybrid, layer.fout)
            del inner
            result = algebra.add_into(m, result, ops.scale(m, ops.cast(m, more, result.itemsize)))
            del more
        del output
        return result

    return forward
