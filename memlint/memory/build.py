"""Weights: family pages ask the `Builder` for layers, and it decides how each is held (dtype, quantised, trained, adapted)."""

from __future__ import annotations

from memlint.memory.linear import Linear, Pair, Quantised, Stack
from memlint.memory.machine import Machine
from memlint.memory.packing import packed_bytes
from memlint.memory.result import CannotEstimate
from memlint.memory.setup import OUTPUT_HEADS, TASK_HEADS, Setup
from memlint.memory.targets import EVERY_LINEAR, default_targets, named
from memlint.memory.tensor import Parameter, Sink, Storage, Tensor
from memlint.typed import Any


class Builder:
    """Makes the parameters of a model on a machine, in construction order."""

    def __init__(self, machine: Machine, setup: Setup, model_type: str) -> None:
        self.machine = machine
        self.setup = setup
        self.model_type = model_type
        self.layer: int = -1
        self.parent: str = ""
        """Which part of a block the next linears belong to: `attn` or `mlp`."""
        self.frozen: bool = False
        """What is made from here on belongs to a part that is not trained (a vision tower)."""
        self.translated: frozenset[str] = frozenset()
        """Target names that PEFT takes to mean stacked parameters; linears of these names are then not adapted."""
        self.parameters: list[Parameter] = []
        self.shared: dict[object, Any] = {}
        """What the tuners of several layers share (banks of vectors, frozen projections), by what it is."""
        self.originals: dict[int, Parameter] = {}
        """Weights that PEFT trains a copy of, by the copy's ident."""
        self.extra: list[Storage] = []
        """Memory that is held but is no parameter: quantisation statistics, buffers."""
        self.adapted: list[Linear] = []

    def forget(self) -> None:
        """Part what refers to each other, weights and their accumulators, layers and their tuners: it would wait for the collector."""
        for parameter in self.parameters:
            parameter.node = None
        for layer in self.adapted:
            layer.tuner = None

    def enter_layer(self, index: int) -> None:
        """The parameters made from here on belong to this decoder layer (-1: to none)."""
        self.layer = index
        self.machine.ledger.enter("load", index)

    def parameter(self, name: str, kind: str, shape: tuple[int, ...], component: str = "weights") -> Parameter:
        """A parameter in the model's own dtype, trained or frozen as the setup says."""
        itemsize = self.setup.norm_itemsize if kind == "norm" else self.setup.weight_itemsize
        return self.make(name, kind, shape, itemsize, not self.frozen and self.setup.trains(name, kind), component)

    def make(self, name: str, kind: str, shape: tuple[int, ...], itemsize: int, trained: bool, component: str) -> Parameter:
        """A parameter of a given element size; `trained` ones get a gradient accumulator."""
        numel = 1
        for size in shape:
            numel *= size
        if self._elsewhere(kind):
            numel, trained = 0, False
        storage = Storage(self.machine.ledger, self._held(numel, itemsize, trained, kind), component)
        parameter = Parameter(storage, numel, itemsize, name, kind, self.layer)
        parameter.shape = shape
        if trained:
            parameter.node = Sink(parameter)
        self.parameters.append(parameter)
        return parameter

    def _elsewhere(self, kind: str) -> bool:
        """The parameter is on another pipeline stage: the embedding is on the first (on the last too where it is the head), final norm
        and head on the last."""
        stage = self.setup.stage
        if stage == "only" or self.layer >= 0:
            return False
        return stage == "last" and not self.setup.tied if kind == "embedding" else stage == "first"

    def _held(self, numel: int, itemsize: int, trained: bool, kind: str) -> int:
        """Bytes of a parameter that stay on this rank between uses."""
        sharding = self.setup.sharding
        if not sharding.shards_weights:
            return numel * itemsize
        if sharding.offload_params:
            return 0
        if trained and kind != "adapter":
            itemsize = max(itemsize, self.setup.stored_itemsize)
        elif not trained and sharding.frozen_int8:
            itemsize = 1
        return sharding.share(numel, kind) * itemsize

    def embedding(self, name: str, rows: int, width: int) -> Parameter:
        """An embedding table; a copy of it is trained when `modules_to_save` names it."""
        saved = self._saved_copy(name, "embedding", (rows, width))
        if saved is not None:
            return saved
        table = self.parameter(name, "embedding", (rows, width))
        if self.setup.adapter in PAIRS and self.setup.adapter_targets not in EVERY_LINEAR and self._adapts(name):
            from memlint.memory.tuners.low_rank import embedding  # it makes its parameters with this class

            self.machine.tuned[table.storage.ident] = embedding(self, name, rows, width)
        return table

    def norm(self, name: str, width: int) -> Parameter:
        """A normalisation weight."""
        return self.parameter(name, "norm", (width,))

    def vector(self, name: str, width: int, kind: str = "bias") -> Parameter:
        """A bias or another one-dimensional weight."""
        return self.parameter(name, kind, (width,))

    def buffer(self, numel: int, itemsize: int) -> Tensor:
        """A tensor of the model that is no weight (position ids)."""
        return Tensor(Storage(self.machine.ledger, numel * itemsize, "weights"), numel, itemsize)

    def linear(
        self, name: str, fin: int, fout: int, bias: bool = False, tied: Parameter | None = None, copies: int = 1
    ) -> Linear:
        """A linear layer. `tied`: it shares this weight (an output head tied to the embedding). `copies`: it stands for
        that many equal layers, each of which sees its part of the rows (experts)."""
        head = name in OUTPUT_HEADS or tied is not None
        setup = self.setup
        if tied is not None and setup.adapter_options.get("ensure_weight_tying"):
            return Linear(name, fin, fout, tied)  # what PEFT makes for the table is the head's, too
        saved = self._saved_copy(name, "linear", (fout, fin), tied)
        if saved is not None:
            layer = Linear(name, fin, fout, saved)
            if bias:
                self.make(f"{name}.bias", "bias", (fout,), self.setup.weight_itemsize, False, "weights")
                layer.bias = self.make(f"{name}.bias.saved", "bias", (fout,), saved.itemsize, True, "adapters")
            return layer
        packed = tied is None and setup.quantises(name, head)
        if tied is not None:
            # PEFT copies module by module: beside a table's copy, the head stays tied to the table itself.
            weight = self.originals.get(tied.storage.ident, tied)
        elif packed:
            weight = self._packed(name, fin, fout * copies)
        else:
            weight = self.parameter(name, "linear", (fout * copies, fin))
        layer = Linear(name, fin, fout, weight)
        if packed:
            layer.quantised = Quantised(setup.quantization, setup.compute_itemsize, setup.unpacked_itemsize)
        if bias:
            layer.bias = self.vector(f"{name}.bias", fout)
        if self._adapts(name, head):
            self._adapt(layer, copies)
        return layer

    def stack(self, name: str, count: int, fin: int, fout: int, listed: tuple[str, ...], kind: str = "experts") -> Stack:
        """The weights of `count` experts in one parameter; no layer for quantisers, which pass it by
        unless the framework packs it itself (axolotl's `quantize_moe_experts`, bitsandbytes' `replace_parameter_4bit`).

        PEFT adapts it when a target names one of the layers that it replaces (`listed`, transformers 4's names), or for
        `all-linear`; the rank is that of all of them together (peft 0.21.2, `transformers_weight_conversion.py`).
        """
        shape = (count * fout, fin)
        setup = self.setup
        if kind == "experts" and setup.quantization and setup.quantizes_experts:
            packed = self._packed(name, fin, count * fout)
            stack = Stack(name, count, fin, fout, packed, quantised=Quantised(setup.quantization, setup.compute_itemsize))
        else:
            stack = Stack(name, count, fin, fout, self.parameter(name, kind, shape))
        if setup.adapter not in PAIRS or not listed or not any(self.targets(n) for n in (name, *listed)):
            return stack
        rank = setup.lora_rank * len(listed)
        a = self.make(f"{name}.lora_A", "adapter", (rank * count, fin), setup.adapter_itemsize, True, "adapters")
        b = self.make(f"{name}.lora_B", "adapter", (fout, rank * count), setup.adapter_itemsize, True, "adapters")
        stack.adapter = Pair(a, b)
        return stack

    def _saved_copy(self, name: str, kind: str, shape: tuple[int, ...], tied: Parameter | None = None) -> Parameter | None:
        """The trained copy that PEFT makes of a module in `modules_to_save`; the original (`tied`: another module's weight) stays."""
        if not self.setup.saves(name):
            return None
        original = tied or self.make(name, kind, shape, self.setup.weight_itemsize, False, "weights")
        # A deep copy, not one of the weights that PEFT raises to float32 (peft 0.21.2 `ModulesToSaveWrapper`, `cast_adapter_dtype`);
        # `prepare_model_for_kbit_training` has raised the original together with the norms.
        itemsize = self.setup.norm_itemsize if self.setup.quantization else self.setup.weight_itemsize
        copy = self.make(f"{name}.saved", kind, shape, itemsize, True, "adapters")
        self.originals[copy.storage.ident] = original
        return copy

    def _packed(self, name: str, fin: int, fout: int) -> Parameter:
        """A quantised weight: packed bytes plus its statistics."""
        data, statistics = packed_bytes(self.setup, fin * fout, fin, fout)
        parameter = self.make(name, "packed", (data,), 1, False, "weights")
        sharding = self.setup.sharding
        if self.setup.quantization == "torchao_nf4" and sharding.shards_weights:
            # The tensor subclass shards its scalers with its data (torchao 0.13 `dtypes/nf4tensor.py`, `nf4_split`); bitsandbytes' stay
            # whole on every rank, as attributes of the module's quantisation state.
            statistics = tuple(sharding.share(nbytes) for nbytes in statistics)
        for nbytes in statistics:
            self.extra.append(Storage(self.machine.ledger, nbytes, "weights"))
        parameter.shape = (fout, fin)
        parameter.logical = fin * fout
        return parameter

    def _adapts(self, name: str, head: bool = False) -> bool:
        """Whether the run puts something on modules, and on this one."""
        method = self.setup.adapter
        listed = method and method not in BESIDE and not self.frozen and name not in self.translated
        return bool(listed) and self.targets(name, head)

    def targets(self, name: str, head: bool = False) -> bool:
        """Whether the adapter is applied to the module of this name."""
        wanted = self.setup.adapter_targets
        if wanted in EVERY_LINEAR:
            # peft knows the classifier of its task types only.
            return not head or (name in TASK_HEADS and self.setup.objective not in TASK_KNOWN)
        if wanted is None:
            wanted = default_targets(self.setup.adapter, self.model_type)
        return named(wanted, self.parent, name)

    def _adapt(self, layer: Linear, copies: int) -> None:
        from memlint.memory.tuners import tuner_of  # they make their parameters with this class
        from memlint.memory.tuners.site import Site

        self.adapted.append(layer)
        try:
            layer.tuner = tuner_of(self.setup.adapter)(Site(self, layer, copies))
        except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            raise CannotEstimate(
                f"adapter.config does not fit the layer {layer.name} ({layer.fin} x {layer.fout}): {error}"
            ) from error


TASK_KNOWN = {"sequence_classification", "reward"}
"""Objectives whose head `all-linear` leaves alone (peft 0.21.2 `tuners/tuners_utils.py`, `_maybe_include_all_linear_layers`)."""

PAIRS = {"lora", "dora", "rslora", "qalora", "pissa", "olora", "lora-fa", "adalora", "mica", "loraplus"}
"""PEFT methods that put a low-rank pair on a linear, and on stacked experts, too."""

BESIDE = {"ln_tuning", "bitfit", "prompt_tuning", "p_tuning", "prefix_tuning", "adaption_prompt", "trainable_tokens",
          "llama_adapter", "llama_adapter_v2", "multitask_prompt_tuning", "cpt", "cartridge"}  # fmt: skip
"""Methods that put nothing on the linears."""
