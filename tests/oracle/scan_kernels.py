"""Stand-ins for mamba-ssm's kernel of the dual form, for which a real one needs a GPU: what its autograd function allocates and keeps.

Read in mamba-ssm 2.2.4: `ops/triton/ssd_combined.py` (`MambaSplitConv1dScanCombinedFn`, `_mamba_chunk_scan_combined_fwd` and `_bwd`),
`ssd_chunk_state.py`, `ssd_state_passing.py`, `ssd_bmm.py`, `ssd_chunk_scan.py`, `layernorm_gated.py`. Buffers whose size depends on the
number of multiprocessors count as on a card that is busy: one split of the heads; partial sums of the norm's weight are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

TYPES = ("mamba2", "nemotron_h", "falcon_h1", "bamba", "granitemoehybrid")
ROWS = 32
"""The smallest tile of the kernels that write a partial sum for each."""
COLUMNS = 64
"""The smallest block of the kernel that passes states on."""


@contextmanager
def kernels(model_type: str) -> Iterator[None]:
    """Mixers of that model type find mamba-ssm's kernel."""
    with ExitStack() as stack:
        if model_type in TYPES:
            module = import_module(f"transformers.models.{model_type}.modeling_{model_type}")
            stack.enter_context(patch.object(module, "mamba2_split_conv1d_scan_combined", _split_conv1d_scan_combined))
        yield


def _split_conv1d_scan_combined(
    zxbcdt: Any, conv_weight: Any, conv_bias: Any, dt_bias: Any, decay: Any, D: Any, chunk_size: int, **options: Any
) -> Any:
    return _DualForm.apply(
        zxbcdt,
        conv_weight,
        conv_bias,
        dt_bias,
        decay,
        D,
        options["rmsnorm_weight"],
        options["outproj_weight"],
        options["outproj_bias"],
        (chunk_size, options["headdim"], options["ngroups"]),
    )


class _Sizes:
    def __init__(self, zxbcdt: torch.Tensor, conv_weight: torch.Tensor, D: torch.Tensor, given: tuple[int, int, int]) -> None:
        self.batch, self.length, _ = zxbcdt.shape
        self.chunk, self.head, self.groups = given
        self.heads, self.mixed, self.chunks = D.shape[0], conv_weight.shape[0], -(-self.length // self.chunk)
        self.dim = self.heads * self.head
        self.state = (self.mixed - self.dim) // self.groups // 2

    def steps(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(self.batch, self.heads, self.chunks, self.chunk, dtype=torch.float32)

    def states(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.new_empty(self.batch, self.chunks, self.heads, self.head * self.state, dtype=dtype)

    def last(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(self.batch, self.heads, self.head * self.state, dtype=torch.float32)

    def square(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(self.batch, self.chunks, self.groups, self.chunk, self.chunk, dtype=torch.float32)

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(self.batch, self.length, self.dim)

    def narrow(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(self.batch, self.length, 1, self.groups, self.state, dtype=torch.float32)


class _DualForm(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(
        ctx: Any, zxbcdt: Any, conv_weight: Any, conv_bias: Any, dt_bias: Any, decay: Any, D: Any, norm: Any, out_weight: Any,
        out_bias: Any, given: tuple[int, int, int],
    ) -> Any:  # fmt: skip
        s = _Sizes(zxbcdt, conv_weight, D, given)
        convolved = zxbcdt.new_empty(s.batch, s.length, s.mixed)
        decays, steps = s.steps(zxbcdt), s.steps(zxbcdt)
        states = s.states(zxbcdt, torch.float32)
        states, final = s.states(zxbcdt, zxbcdt.dtype), s.last(zxbcdt)
        products = s.square(zxbcdt)
        out = s.wide(zxbcdt)
        kept = out if norm is not None else s.wide(zxbcdt)
        del products
        statistics = None
        if norm is not None:
            out = s.wide(zxbcdt)
            statistics = zxbcdt.new_empty(s.groups * s.batch * s.length, dtype=torch.float32)
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            out, out_weight = out.to(dtype), out_weight.to(dtype)
            out_bias = out_bias.to(dtype) if out_bias is not None else None
        out = F.linear(out, out_weight, out_bias)
        ctx.save_for_backward(zxbcdt, conv_weight, conv_bias, kept, decay, D, dt_bias, norm, statistics, out_weight, out_bias)
        ctx.given = given
        del convolved, decays, steps, states, final
        return out

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: Any) -> Any:
        zxbcdt, conv_weight, conv_bias, kept, decay, D, dt_bias, norm, _, out_weight, out_bias = ctx.saved_tensors
        s = _Sizes(zxbcdt, conv_weight, D, ctx.given)
        again = s.wide(kept)
        convolved = zxbcdt.new_empty(s.batch, s.length, s.mixed)
        dzxbcdt = torch.empty_like(zxbcdt)
        dconvolved = zxbcdt.new_empty(s.batch, s.length, s.mixed)
        projected = F.linear(grad, out_weight.t())
        dout = s.wide(projected) if norm is not None else projected
        dnorm = torch.empty_like(norm) if norm is not None else None
        # `_mamba_chunk_scan_combined_bwd`
        steps_in = zxbcdt.new_empty(s.batch, s.length, s.heads)
        decays, steps = s.steps(zxbcdt), s.steps(zxbcdt)
        products = s.square(zxbcdt)
        states = s.states(zxbcdt, torch.float32)
        states = s.states(zxbcdt, torch.float32)
        final = s.last(zxbcdt)
        del final
        if norm is None:
            dout, again = s.wide(projected), s.wide(kept)
        dstates = s.states(zxbcdt, torch.float32)
        narrow_dstates = s.states(zxbcdt, zxbcdt.dtype)
        ddecay_chunks = zxbcdt.new_empty(s.batch, s.heads, s.chunks, -(-s.head * s.state // COLUMNS), dtype=torch.float32)
        narrow_states = s.states(zxbcdt, zxbcdt.dtype)
        del dstates, states
        dsteps = s.steps(zxbcdt)
        partial = zxbcdt.new_empty(-(-s.chunk // ROWS), s.batch, s.chunks, s.heads, 1, dtype=torch.float32)
        dD = torch.empty_like(D)
        del partial
        dB, after = s.narrow(zxbcdt), s.steps(zxbcdt)
        dB = dB.sum(2)
        dC, before = s.narrow(zxbcdt), s.steps(zxbcdt)
        dC = dC.sum(2)
        dproducts = s.square(zxbcdt).unsqueeze(2).sum(2)
        earlier = before.flip([-1]).cumsum(dim=-1).flip([-1])
        ddecays = zxbcdt.new_empty(s.batch, s.heads, s.chunks, -(-s.chunk // ROWS), s.chunk, dtype=torch.float32).sum(dim=3)
        ddecays += after + earlier
        ddecay, ddt_bias = torch.empty_like(decay), torch.empty_like(dt_bias)
        del steps_in, decays, steps, products, narrow_dstates, ddecay_chunks, narrow_states, dsteps, dB, dC, after, before
        del dproducts, earlier, ddecays
        dout_weight = torch.einsum("bso,bsd->od", grad, again)
        dout_bias = grad.sum(dim=(0, 1)) if out_bias is not None else None
        dconv_weight = torch.empty_like(conv_weight)
        dconv_bias = torch.empty_like(conv_bias) if conv_bias is not None else None
        del convolved, dconvolved, projected, dout
        return dzxbcdt, dconv_weight, dconv_bias, ddt_bias, ddecay, dD, dnorm, dout_weight, dout_bias, None
