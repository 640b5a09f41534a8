"""One training step as a memory program: run the model's page on a machine and record every allocation and free.

The phases follow the loop of the frameworks: load, states, forward, loss, backward, optimizer_step. Only a few layers are simulated;
`memlint.memory.timeline` repeats the middle one, since its events are alike.
"""

from __future__ import annotations

from memlint.later import later
from memlint.memory import attention, cache, compiled, loading, loss, optimizer, timeline, zero
from memlint.memory.autograd import backward
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed, plain
from memlint.memory.families import page_of
from memlint.memory.families.model import Model
from memlint.memory.machine import Machine, start
from memlint.memory.reduction import bucket, gathered_gradients, gathered_outputs, gradient_buffers, step_in_backward
from memlint.memory.setup import Setup
from memlint.memory.tensor import BYTE, INT64, Ledger, Parameter, Storage, Tensor
from memlint.memory.units import ROOT, Units, units_of
from memlint.models.architecture import Architecture
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.memory import evaluation, reference
else:  # few runs have any of these
    evaluation, reference = later("memlint.memory", "evaluation", "reference")

CHECKPOINTED = {"full", "selective_op", "selective_layer"}

PROMPTS = {"prompt_tuning", "p_tuning", "prefix_tuning", "multitask_prompt_tuning", "cpt", "cartridge", "adaption_prompt",
           "trainable_tokens"}  # fmt: skip
"""PEFT methods that train something beside the model's own layers."""

INPUT_SIDE = {"prompt_tuning", "p_tuning", "trainable_tokens", "multitask_prompt_tuning", "cpt", "adaption_prompt"}
"""PEFT methods that train what enters the first layer, so that gradients flow through the whole stack."""


class Program:
    """The recorded events of loading and one steady step, for `layers` simulated layers."""

    def __init__(self, ledger: Ledger, layers: int, builder: Builder, keep: list[object]) -> None:
        self.ledger = ledger
        self.layers = layers
        self.builder = builder
        self.parameters = builder.parameters
        self.keep = keep
        """What is alive at the end: held so that its frees are not recorded."""


def record(setup: Setup, architecture: Architecture, layers: int) -> Program:
    """Simulate loading and one steady step with `layers` layers."""
    m = machine_for(setup, architecture)
    ledger = m.ledger
    ledger.enter("load")
    builder = Builder(m, setup, architecture.model_type)
    framework = "megatron" if setup.sharding.strategy == "megatron" else setup.stack.framework
    model = page_of(architecture.model_type, framework)(builder, architecture, layers)
    if setup.media.tower:
        from memlint.memory.families.described_tower import described_tower  # few models have one

        described_tower(builder, setup.media.tower)
    if setup.stage == "first":
        model.head, model.stages[-1].finish = None, lambda m, x: x
    if setup.adapter in PROMPTS:
        from memlint.memory.tuners.prompts import add_prompts  # few runs have them

        add_prompts(builder, architecture, layers)
    loading.converted(ledger, setup, builder.parameters)
    trained = [p for p in builder.parameters if p.node is not None]
    units = units_of(m, setup, builder.parameters)
    if units is not None and setup.sharding.reshards_root and model.head is not None:
        head, owner = model.head, units
        model.head = lambda m, hidden: owner.left(head(m, hidden))
    if setup.in_backward and units is None:
        step_in_backward(trained)
    second = reference.weights(m, setup, builder.parameters) if setup.reference_copy else []
    buffers = optimizer.masters(m, setup, trained)
    ledger.enter("buffers")
    buffers += gradient_buffers(m, setup, builder.parameters)
    ledger.enter("buffers")
    buffers += [Storage(ledger, setup.workspace, "workspace") for _ in range(2)]
    if setup.beside:
        buffers.append(Storage(ledger, setup.beside, "workspace"))
    if setup.companions:
        buffers.append(Storage(ledger, setup.companions, "weights"))
    whole = keeps_whole_gradients(setup, units)
    stays = (setup.stack.keeps_outputs and not setup.stack.drops_outputs) or held_over(m, setup)
    if stays or (whole and (setup.accumulates or setup.stack.zeroes_in_place)):
        # The next forward still meets what the first step's names hold, or a first micro-batch's gradients.
        ledger.prefix = timeline.FIRST
        step(m, setup, model, units, trained, whole, last=not (whole and setup.accumulates))
        if not stays:
            m.outputs.clear()
        ledger.prefix = ""
    states = optimizer.states(m, setup, trained)
    step(m, setup, model, units, trained, whole)
    if setup.evaluation_batch and setup.sharding.strategy != "megatron":
        evaluation.evaluate(m, setup, model, lambda: forward(m, setup, model, units))
        if units is not None:
            units.finish()
    if setup.rollouts and setup.sharding.strategy != "megatron":
        from memlint.memory.generation import generate  # few runs generate

        generate(m, setup, architecture, lambda: forward(m, setup, model, units))
        if units is not None:
            units.finish()
    return Program(ledger, layers, builder, [model, units, states, buffers, second, m])


def held_over(m: Machine, setup: Setup) -> bool:
    """Whether a step's forward meets, at full length, what the graph of the step before still holds: its loss stays bound, and long
    batches follow one another (the scripts that put the one longest sample first never show that)."""
    stack = setup.stack
    lengthy = stack.keeps_loss and not stack.longest_first and setup.optimizer != "none"
    keeps = setup.quantization == "bnb_8bit" or (setup.quantization == "bnb_4bit" and m.keeps_quantised_inputs)
    return keeps and lengthy


def machine_for(setup: Setup, architecture: Architecture) -> Machine:
    """A machine with the settings that every layer looks at."""
    m = start(setup.batch, setup.sequence)
    m.attention = setup.attention
    m.keeps_mixed = not setup.recomputes_attention
    m.float32_math = setup.stack.float32_math
    m.exchange, m.context = setup.sharding.exchange, setup.sharding.context
    m.split = setup.sharding.tensor if setup.sharding.sequence_parallel else 1
    m.autocast = setup.autocast
    m.float16 = setup.float16
    m.kernels = setup.kernels
    m.compiled = setup.compiled
    m.wide_dropout_masks = setup.stack.wide_dropout_masks
    m.written_gelu = setup.stack.written_gelu
    m.caches = setup.uses_cache and setup.stack.returns_cache and setup.checkpointing == "none"
    m.no_flash = setup.no_flash
    if setup.attention.startswith("flash"):
        m.repeats_kv = architecture.model_type in setup.stack.repeats_kv_flash
    elif setup.attention == "xformers":
        m.repeats_kv = True  # it takes as many heads of keys as of queries
    else:
        m.repeats_kv = setup.stack.repeats_kv_sdpa
    m.keeps_quantised_inputs = setup.stack.bnb_keeps_input
    m.keeps_unpacked = not setup.stack.gptq_kernels
    m.ledger.empties_steps = setup.stack.empties_cache
    # What a later pipeline stage receives needs a gradient, too.
    hooked = setup.checkpointing != "none" and bool(setup.adapter or setup.stack.hooks_embeddings)
    m.input_grads = setup.stage == "last" or hooked or setup.input_grads or setup.adapter in INPUT_SIDE
    return m


def keeps_whole_gradients(setup: Setup, units: Units | None) -> bool:
    """Each rank has the gradient of every weight it holds, as backward makes it, until the step."""
    sharding = setup.sharding
    sharded = sharding.is_zero or sharding.strategy == "megatron" or (units is not None and bool(units.parameters))
    return not sharded and sharding.pipeline == 1


def step(
    m: Machine, setup: Setup, model: Model, units: Units | None, trained: list[Parameter], whole: bool, last: bool = True
) -> None:
    """Forward, loss, backward; after the `last` micro-batch the optimizer's step, and gradients dropped."""
    ledger = m.ledger
    persistent = setup.stack.zeroes_in_place
    if not whole and (setup.accumulates or persistent) and setup.sharding.strategy not in ("megatron", "zero3"):
        accumulated(m, setup, units, trained)
    ledger.enter("forward")
    labels = Storage(ledger, m.tokens * INT64)
    ids = Storage(ledger, m.tokens * INT64)
    eager = setup.attention == "eager"
    if setup.padding_mask or (eager and model.causal and setup.stack.pads):
        m.mask = attention.make_mask(m, BYTE if setup.stack.boolean_masks and not eager else setup.weight_itemsize)
    old = len(m.held)
    scored_first = setup.reference_copy and setup.sharding.strategy == "megatron"
    if scored_first:
        reference.scored(m, model, lambda: forward(m, setup, model, units))
        ledger.enter("forward")
    waiting = [started(m, setup, model, units) for _ in range(setup.under_way - 1)]
    one_graph = m.compiled == "model"
    with compiled.Forward(m, one_graph and ("cross_entropy" in m.kernels or setup.objective in loss.POOLED)):
        with compiled.Forward(m, one_graph):
            hidden = forward(m, setup, model, units)
        m.mask = None
        ledger.component = "logits"
        value = loss.compute(m, setup, model, hidden)
        del hidden
    m.named.clear()
    cache.drop(m)
    if setup.reference_copy and not scored_first:
        reference.scored(m, model, lambda: forward(m, setup, model, units))
    if setup.sharding.strategy == "dp":
        ledger.enter("loss")
        gathered_outputs(m, setup, model)
    m.end_autocast()
    m.outputs.clear()
    if old:
        m.release(old)
    ledger.component = "activations"
    ledger.enter("backward")
    buckets = bucket(m, setup, trained)
    collected = zero.partition(m, setup, trained) if zero.reduces_early(setup, trained) else []
    root = value.pop(0)
    if one_graph:
        compiled.enter(m)
    backward(m.tape, root, [m.new(1, 4)])
    compiled.leave(m)
    compiled.end(m)
    del root
    if units is not None:
        units.finish()
    if setup.sharding.strategy == "dp":
        gathered_gradients(m, trained)
    collected = collected or zero.partition(m, setup, trained)
    m.partition = m.partition or collected
    del collected
    buckets.clear()
    m.arguments.clear()
    if not setup.stack.drops_outputs:
        m.outputs += value
    del value
    drop(m, waiting)
    if m.held and not held_over(m, setup):
        m.release()
    if last:
        ledger.component = "workspace"
        optimizer.step(m, setup, trained)
        m.partition = []
        for parameter in trained if not (whole and persistent) else ():
            ledger.enter("optimizer_step", parameter.layer)
            parameter.grad = None
        ledger.component = "activations"
        ledger.enter("optimizer_step")
    del labels, ids


def started(m: Machine, setup: Setup, model: Model, units: Units | None) -> list[Tensor]:
    """A micro-batch of a pipeline that has been forward, and whose backward is yet to come. Where that does not follow at once, the
    last stage has its loss."""
    hidden = forward(m, setup, model, units)
    return loss.compute(m, setup, model, hidden) if setup.fills else [hidden]


def drop(m: Machine, waiting: list[list[Tensor]]) -> None:
    """Micro-batches still under way when this one's backward is over; their graphs go with the simulation's step."""
    m.ledger.enter("release")
    waiting.clear()


def accumulated(m: Machine, setup: Setup, units: Units | None, trained: list[Parameter]) -> None:
    """The gradients that earlier micro-batches of the same step left behind: a rank's share where they are sharded."""
    if units is not None and units.parameters:
        units.accumulated()
        return
    ledger = m.ledger
    if setup.sharding.strategy == "zero2":
        ledger.enter("accumulated")
        m.partition = zero.partition(m, setup, trained)
        return
    for parameter in trained:
        ledger.enter("accumulated", parameter.layer)
        parameter.grad = Tensor(
            Storage(ledger, parameter.numel * parameter.itemsize, "gradients"), parameter.numel, parameter.itemsize
        )


def forward(m: Machine, setup: Setup, model: Model, units: Units | None) -> Tensor:
    """Every stage: embedding, blocks (checkpointed where the setup says), final normalisation."""
    m.named.clear()
    m.names_weights = model.names_weights
    context: Tensor | None = None
    x: Tensor | None = None
    index = 0
    blocks = sum(len(stage.blocks) for stage in model.stages)
    for stage in model.stages:
        m.ledger.enter("forward")
        if units is not None:
            units.enter_forward(ROOT)
        x = stage.embed(m, context)
        embedded = x if setup.stack.names_embedding and model.names_embedding else None
        if units is not None:
            units.past_embedding()
        for block in stage.blocks:
            if model.names_states:
                m.named.append(x)
            m.ledger.enter("forward", index)
            if units is not None:
                units.enter_forward(index)
            if index in stage.between:
                x = stage.between[index](m, x)
            if setup.checkpointing in CHECKPOINTED and index % setup.checkpoint_every == 0:
                x = checkpointed(m, setup, units, block, x, context, index)
            else:
                x = plain(m, units, block, x, context, index)
            if units is not None:
                units.leave_forward(index, last=index == blocks - 1)
            index += 1
        m.ledger.enter("forward")
        if units is not None:
            units.enter_head()
        x = stage.finish(m, x)
        m.returned = []
        m.embedded.clear()
        del embedded
        if context is not None:
            m.named.append(context)
        context = x
    if units is not None:
        units.end_forward()
    assert x is not None
    return x
