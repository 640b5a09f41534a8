"""Tuners that work in a decomposition of the base weight."""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.linear import base, product
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Grads, Tensor
from memlint.memory.tuners.site import Forward, Site


def adamss(site: Site) -> Forward:
    """`adamss/layer.py`: the weight's r leading directions; the outputs are clustered, and each cluster has a small pair of its own.

    Everything is cast to the base weight's dtype. The clusters' sizes depend on the weights: equal ones are taken.
    """
    site.only()
    layer, rank, own = site.layer, site.rank(100), site.layer.weight.itemsize
    clusters, small = int(site.option("num_subspaces", 5)), int(site.option("subspace_rank", 1))
    fin = layer.fin + (1 if layer.bias is not None else 0)
    directions = site.buffer(rank * fin, site.builder.setup.adapter_itemsize)
    sizes = [layer.fout // clusters + (i < layer.fout % clusters) for i in range(clusters)]
    pairs = [
        (site.parameter(f"adamss_A.{i}", small, rank), site.parameter(f"adamss_B.{i}", size, small))
        for i, size in enumerate(sizes)
    ]

    def spread(m: Machine, parts: Tensor) -> Tensor:
        """`zeros.scatter(-1, index, parts)`; backward gathers."""
        zeros = m.new(parts.numel, parts.itemsize)
        out = m.new(parts.numel, parts.itemsize)
        numel, itemsize = parts.numel, parts.itemsize
        del zeros
        return m.tape.record(out, (parts,), lambda g: (m.new(numel, itemsize),))

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        x = ops.cast(m, x, own)
        rows = x.numel // layer.fin
        wide = x
        if layer.bias is not None:
            wide = ops.concat(m, (x, m.new(rows, own)))
        result = base(m, layer, x)
        low = product(m, wide, ops.cast(m, directions, own), None, fin, rank)
        parts = []
        for (a, b), size in zip(pairs, sizes, strict=True):
            first, second = ops.cast(m, a, own), ops.cast(m, b, own)
            inner = product(m, low, first, None, rank, small)
            inner = product(m, inner, second, None, small, size)
            parts.append(inner)
        delta = spread(m, ops.concat(m, tuple(parts)))
        result = ops.add(m, result, delta)
        del delta, parts, first, second, inner, low, wide
        return ops.cast(m, result, dtype)

    return forward


def frod(site: Site) -> Forward:
    """`frod/layer.py` and `frod/model.py`: the base weight is replaced by U (S + L) V^T; U is the layer's, V shared by all layers of a
    name, S a sparse and L a diagonal trained matrix. All is cast to the input's dtype; in half types S is made dense.

    U, V and the places of S are buffers, which move to the card with the model; with `runtime_offload_base_weight` the base weight rests
    on the host.
    """
    site.only()
    layer = site.layer
    fin, fout, p = layer.fin, layer.fout, site.dropout("frod_dropout")
    count = max(1, int(fin * fin * float(site.option("sparse_rate", 0.01))))
    own = layer.weight.itemsize
    values, diagonal = site.parameter("frod_lambda_s_values", count), site.parameter("frod_lambda_l", fin)
    kind = (layer.name, fin)
    v = site.shared(("frod_V", *kind), lambda: site.buffer(fin * fin, own))
    site.shared(("frod_s_indices", *kind), lambda: site.buffer(2 * count, INT64))
    u = site.buffer(fout * fin, own)
    if site.option("runtime_offload_base_weight", False) and not p:
        layer.weight.storage.resize(0)

    def sparse(m: Machine, dtype: int) -> Tensor:
        """`sparse_coo_tensor(...).coalesce().to_dense()`: sorted copies of places and values; backward reads the places off."""
        own_values = ops.cast(m, values, dtype)
        sorted_places, sorted_values = m.new(2 * count, INT64), m.new(count, dtype)
        out = m.new(fin * fin, dtype)

        def rule(g: Tensor) -> Grads:
            return (m.new(count, dtype),)

        return m.tape.record(out, (own_values,), rule, (sorted_places.storage, sorted_values.storage))

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        dense, line = None, ops.cast(m, diagonal, dtype)
        plain = base(m, layer, x) if p else None
        h = ops.dropout(m, x, p)
        z = product(m, h, v, None, fin, fin)
        dense = sparse(m, dtype)
        turned = product(m, z, dense, None, fin, fin)
        scaled = ops.mul(m, z, line)
        out = product(m, ops.add(m, turned, scaled), u, None, fin, fout)
        if plain is not None:
            removed = product(m, h, layer.weight, None, fin, fout)
            out = ops.subtract(m, ops.add(m, plain, out), removed)
            del removed
        elif layer.bias is not None:
            out = ops.add(m, out, layer.bias)
        result = ops.cast(m, out, dtype)
        del dense, line, turned, scaled, z, h, plain
        return result

    return forward
