"""Tuners whose layers draw on something that they share: frozen random projections, banks of vectors, common factors."""

from __future__ import annotations

from memlint.memory import algebra, ops
from memlint.memory.linear import base, product
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Parameter, Tensor
from memlint.memory.tuners.site import BNB, Forward, Site, base_to_add_to


def part(bank: Tensor, numel: int) -> Tensor:
    """The slice of a bank that a layer takes."""
    return Tensor(bank.storage, numel, bank.itemsize)


def vera(site: Site) -> Forward:
    """`vera/layer.py`: two random matrices as wide as the widest layer, of which each takes a slice; two trained vectors."""
    site.only(*BNB)
    layer, rank, p = site.layer, site.rank(256), site.dropout("vera_dropout")
    rows, columns = site.widest()
    a, b = site.bank("vera_A", rank * columns), site.bank("vera_B", rows * rank)
    outer, inner = site.parameter("vera_lambda_b", layer.fout), site.parameter("vera_lambda_d", rank)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base_to_add_to(m, layer, x)
        x = ops.cast(m, x, inner.itemsize)
        low = ops.mul(m, inner, product(m, ops.dropout(m, x, p), part(a, rank * layer.fin), None, layer.fin, rank))
        result = ops.add(m, result, ops.mul(m, outer, product(m, low, part(b, layer.fout * rank), None, rank, layer.fout)))
        del low
        return ops.cast(m, result, dtype)

    return forward


def pvera(site: Site) -> Forward:
    """`pvera/layer.py` and `pvera/bnb.py`: VeRA whose low-rank values are drawn from a distribution with a trained mean and variance."""
    site.only(*BNB)
    layer, rank, p = site.layer, site.rank(256), site.dropout("pvera_dropout")
    rows, columns = site.widest()
    a, b = site.bank("pvera_A", 2 * rank * columns), site.bank("pvera_B", rows * rank)
    outer, inner = site.parameter("pvera_lambda_b", layer.fout), site.parameter("pvera_lambda_d", 2 * rank)

    def drawn(m: Machine, mean: Tensor, variance: Tensor) -> Tensor:
        deviation = ops.unary(m, ops.scale(m, variance), keeps="output")
        noise = m.new(deviation.numel, deviation.itemsize)
        return ops.add(m, mean, ops.mul(m, noise, deviation))

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base_to_add_to(m, layer, x)
        x = ops.cast(m, x, inner.itemsize)
        both = ops.mul(m, inner, product(m, ops.dropout(m, x, p), part(a, 2 * rank * layer.fin), None, layer.fin, 2 * rank))
        mean, variance = ops.split(m, both, (both.numel // 2, both.numel // 2))
        result = ops.add(
            m, result, ops.mul(m, outer, product(m, drawn(m, mean, variance), part(b, layer.fout * rank), None, rank, layer.fout))
        )
        del both, mean, variance
        return ops.cast(m, result, dtype)

    return forward


def randlora(site: Site) -> Forward:
    """`randlora/layer.py` and `randlora/bnb.py`: as many random bases as give full rank, weighted by trained diagonals."""
    site.only(*BNB)
    layer, rank, p = site.layer, site.rank(32), site.dropout("randlora_dropout")
    rows, columns = site.widest()
    short, long = sorted((rows, columns))
    a, b = site.bank("randlora_A", rank * short), site.bank("randlora_B", long * -(-short // rank) * rank)
    small, large = sorted((layer.fin, layer.fout))
    bases = -(-small // rank)
    weights, diagonal = site.parameter("randlora_lambda", rank, bases), site.parameter("randlora_gamma", bases, small)
    size = rank * bases
    packed4 = layer.quantised is not None

    def scaled(m: Machine) -> Tensor:
        """`UniqueBaseGrad`: the shared base times both diagonals; its backward multiplies the gradient by the base and by one of them."""
        partial = m.new(size * small, a.itemsize)
        out = m.new(size * small, a.itemsize)
        del partial
        nw, nd, itemsize = weights.numel, diagonal.numel, a.itemsize

        def rule(g: Tensor) -> tuple[Tensor | None, ...]:
            term = m.new(size * small, itemsize)
            first = m.new(nw, itemsize)
            term = m.new(size * small, itemsize)
            second = m.new(nd, itemsize)
            del term
            return first, second

        return m.tape.record(out, (weights, diagonal), rule)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        if packed4:
            result = ops.copy(m, result)
        fixed, trained = part(b, large * size), scaled(m)
        first, second = (trained, fixed) if small == layer.fin else (fixed, trained)
        x = ops.cast(m, x, a.itemsize)
        low = product(m, ops.dropout(m, x, p), first, None, layer.fin, size)
        result = ops.add(m, result, ops.scale(m, product(m, low, second, None, size, layer.fout)))
        del low, first, second, trained, fixed
        return ops.cast(m, result, dtype)

    return forward


def vblora(site: Site) -> Forward:
    """`vblora/layer.py`: every piece of both factors is a mixture of the `topk` best vectors of a trained bank."""
    site.only()
    layer, rank, p = site.layer, site.rank(4), site.dropout("vblora_dropout")
    count, length, top = int(site.option("num_vectors", 256)), int(site.option("vector_length", 256)), int(site.option("topk", 2))
    bank: Parameter = site.shared("vblora_vector_bank", lambda: site.parameter("vblora_vector_bank", count, length))
    first = site.parameter("vblora_logits_A", rank, layer.fin // length, count)
    second = site.parameter("vblora_logits_B", layer.fout // length, rank, count)

    def mixed(m: Machine, logits: Parameter) -> Tensor:
        pieces = logits.numel // count
        best, index = algebra.top(m, logits, pieces * top)
        weights = ops.softmax(m, best, best.itemsize)
        vectors = ops.gather(m, bank, index, pieces * top * length)
        return ops.sum_last(m, ops.mul(m, weights, vectors), pieces * length)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        a, b = mixed(m, first), ops.copy(m, mixed(m, second))
        x = ops.cast(m, x, bank.itemsize)
        low = product(m, ops.dropout(m, x, p), a, None, layer.fin, rank)
        result = ops.add(m, result, product(m, low, b, None, rank, layer.fout))
        del low, a, b
        return ops.cast(m, result, dtype)

    return forward


def unilora(site: Site) -> Forward:
    """`unilora/layer.py`: every element of both factors is one of a few trained numbers, chosen by a fixed index and scaled."""
    site.only()
    layer, rank, p = site.layer, site.rank(4), site.dropout("unilora_dropout")
    numbers: Parameter = site.shared(
        "unilora_theta_d", lambda: site.parameter("unilora_theta_d", int(site.option("theta_d_length", 256)))
    )
    sizes = (rank * layer.fin, rank * layer.fout)
    indices = [site.buffer(size, INT64) for size in sizes]
    scales = [site.buffer(size, numbers.itemsize) for size in sizes]

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        a, b = (ops.mul(m, ops.gather(m, numbers, indices[i], sizes[i]), scales[i]) for i in (0, 1))
        x = ops.cast(m, x, numbers.itemsize)
        low = product(m, ops.dropout(m, x, p), a, None, layer.fin, rank)
        result = ops.add(m, result, product(m, low, b, None, rank, layer.fout))
        del low, a, b
        return ops.cast(m, result, dtype)

    return forward


def lily(site: Site) -> Forward:
    """`lily/layer.py` and `lily/model.py`: `num_B` factors shared by all layers of a name, mixed by a router that looks at the low-rank
    values; A is shared by `stride_A` consecutive layers."""
    site.only()
    layer, rank = site.layer, site.rank(32)
    stride, experts = int(site.option("stride_A", 1)), int(site.option("num_B", 2))
    kind = (layer.name, layer.fin, layer.fout)
    place = site.builder.shared.get(("lily", *kind), 0)
    site.builder.shared[("lily", *kind)] = place + 1
    a: Parameter = site.shared(("lily_A", *kind, place // stride), lambda: site.parameter("lily_A", rank, layer.fin))
    factors: Parameter = site.shared(("lily_B", *kind), lambda: site.parameter("lily_B", experts * rank, layer.fout))
    router = site.parameter("lily_router", experts, rank)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        x = ops.cast(m, x, a.itemsize)
        hidden = product(m, x, a, None, layer.fin, rank)
        logits = product(m, hidden, router, None, rank, experts)
        shares = ops.softmax(m, logits, 4)
        mean = algebra.mean_rows(m, shares, experts)
        mixed = ops.matmul(m, mean, factors, rank * layer.fout)
        delta = ops.matmul(m, hidden, mixed, hidden.numel // rank * layer.fout)
        result = ops.add(m, result, ops.cast(m, ops.scale(m, delta), dtype))
        del hidden, logits, shares, mean, mixed, delta
        return result

    return forward


def tinylora(site: Site) -> Forward:
    """`tinylora/layer.py` and `tinylora/model.py`: `u` trained numbers mix as many random matrices (r x r) between the leading singular
    vectors of the weight; `weight_tying` makes groups of layers share them."""
    site.only(*BNB)
    layer, u, p = site.layer, int(site.option("u", 64)), site.dropout("tinylora_dropout")
    rank = min(site.rank(2), layer.fin, layer.fout)
    size = site.builder.setup.adapter_itemsize
    tying = float(site.option("weight_tying", 0.0))
    place = site.builder.shared.get("tinylora", 0)
    site.builder.shared["tinylora"] = place + 1
    group = 0 if tying >= 1 else place // max(1, int(1 / (1 - tying)))
    numbers: Parameter = site.shared(("tinylora_v", group), lambda: site.parameter("tinylora_v", u))
    a, b, directions = (
        site.buffer(rank * layer.fin, size),
        site.buffer(layer.fout * rank, size),
        site.buffer(u * rank * rank, size),
    )

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        middle = ops.matmul(m, numbers, directions, rank * rank)
        x = ops.cast(m, ops.dropout(m, x, p), a.itemsize)
        low = product(m, x, a, None, layer.fin, rank)
        low = product(m, low, middle, None, rank, rank)
        delta = product(m, low, b, None, rank, layer.fout)
        result = ops.cast(m, ops.add(m, result, delta), dtype)
        del middle, low, delta, x
        return result

    return forward


def poly(site: Site) -> Forward:
    """`poly/layer.py`: an inventory of `n_skills` pairs, mixed anew for each sample by a router that knows its task."""
    site.only()
    layer, rank, skills, splits = site.layer, site.rank(8), int(site.option("n_skills", 4)), int(site.option("n_splits", 1))
    a, b = site.parameter("poly_lora_A", skills, layer.fin, rank), site.parameter("poly_lora_B", skills, rank, layer.fout)
    router = site.parameter("poly_router.module_logits", int(site.option("n_tasks", 1)), splits * skills)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype, batch = result.itemsize, m.batch
        shares = ops.unary(m, algebra.linear_function(m, router, batch * splits * skills), keeps="output")
        first = ops.copy(m, ops.matmul(m, shares, a, batch * layer.fin * rank))
        second = ops.copy(m, ops.matmul(m, shares, b, batch * rank * layer.fout))
        x = ops.cast(m, x, a.itemsize)
        low = ops.matmul(m, x, first, x.numel // layer.fin * rank)
        output = ops.scale(m, ops.matmul(m, low, second, result.numel))
        result = ops.cast(m, ops.add(m, result, output), dtype)
        del shares, first, second, low, output, x
        return result

    return forward
