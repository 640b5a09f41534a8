"""TrainingRun and Architecture -> Estimate: decide the setup, run the program, replay the allocator, put intervals around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memlint.facts import TrainingRun
from memlint.gpus.gpu import Gpu
from memlint.later import later
from memlint.memory import allocator, loading, pipeline, saving, timeline
from memlint.memory.beside import communicators, rollouts
from memlint.memory.companions import companions
from memlint.memory.depth import plans
from memlint.memory.effects import effects
from memlint.memory.events import Events, Peak
from memlint.memory.families import page_of
from memlint.memory.heap import DoesNotComplete
from memlint.memory.host import host_bytes
from memlint.memory.placement import dealt, divided, is_divided
from memlint.memory.program import Program, record
from memlint.memory.result import CannotEstimate, Estimate, Instant, Interval
from memlint.memory.scenarios import bounded_over, scenarios
from memlint.memory.setup import Setup, setup_of
from memlint.memory.tensor import Parameter
from memlint.models.architecture import Architecture
from memlint.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memlint.memory import unsloth_loss
else:  # few runs have them
    (unsloth_loss,) = later("memlint.memory", "unsloth_loss")

DEFAULT_CONTEXT = (300 << 20, 520 << 20, 900 << 20)
"""CUDA context and libraries of one process on an unknown card: 520 MiB in pytorch/pytorch#151030; 135 MiB on a T4 and over 1 GiB by
NVML on an A100 have been seen, driver reserve included."""


EAGER_CONTEXT = (1000 << 20, 1343 << 20, 1500 << 20)
"""Before lazy module loading: 1343 MiB on a V100 in 2022 (transformers documentation of 4.20, "perf_train_gpu_one")."""


PHASES = ("load", "states", "accumulated", "reference", "forward", "loss", "backward", "optimizer_step")
"""What reports tell apart, beside the evaluation."""


class _Figures(NamedTuple):
    """One scenario's bytes."""

    allocated: int
    required: int
    reserved: int
    loading: int
    """What loading reserves, where steps are counted by themselves."""
    left: Interval
    """What stays reserved between steps: all of it, or less where the card made the allocator give its cache back."""
    unpacked: int
    """What loading may need where weights are packed on the card later than they come; 0: they are packed one by one."""
    cloned: int
    """What saving a checkpoint may need where its state dict copies packed weights; 0: it does not."""
    peaks: tuple[Peak, ...]
    parameters: int
    trainable: int
    setup: Setup
    assumptions: tuple[str, ...]


def estimate(run: TrainingRun, architecture: Architecture, gpu: Gpu | None = None) -> Estimate:
    """The peak memory of one rank. Raises `CannotEstimate` when a fact it cannot do without is missing."""
    variants = scenarios(run, architecture, gpu)
    figures = [_figures(variant, architecture, gpu) for variant in variants]
    expected = figures[0]
    widening = effects(run, expected.setup, architecture)
    allocated = _interval([f.allocated for f in figures], [e.allocated for e in widening])
    reserved = _interval([f.reserved for f in figures], [e.reserved for e in widening])
    beyond = max(max(f.unpacked, f.cloned) for f in figures)
    reserved = reserved._replace(high=max(reserved.high, expected.loading, beyond))
    required = Interval(
        max(allocated.low, 0),
        expected.required,
        max(beyond, int(_stretched(max(f.required for f in figures), (e.allocated[1] for e in widening)))),
    )
    context = DEFAULT_CONTEXT if gpu is None else (gpu.context_low, gpu.context_bytes, gpu.context_high)
    beside = _beside(expected.setup, context, gpu)
    # NVML's first interface counts what the driver keeps back from torch's total as used, its second and nvidia-smi do not
    # (rust-nvml/nvml-wrapper#57: 912 and 7.8 MiB on an idle A100): halfway lies between what the two show.
    driver = gpu.driver_bytes if gpu is not None and not expected.setup.stack.eager_context else 0
    device = Interval(
        _interval([f.left.low for f in figures], [e.reserved for e in widening]).low + context[0] + beside.low,
        expected.left.expected + context[1] + driver // 2 + beside.expected,
        reserved.high + context[2] + driver + beside.high,
    )
    top = max((p for p in expected.peaks if p.phase not in ("load", "states")), key=lambda p: p.total)
    components = dict(top.components)
    # What the allocator rounds up: a large block keeps an unsplit tail of up to 1 MiB.
    components["workspace"] = components.get("workspace", 0) + allocated.expected - sum(components.values())
    steps = tuple(Instant(p.phase, p.total, dict(p.components)) for p in expected.peaks if p.phase != "states")
    said = dict.fromkeys(sentence for f in figures for sentence in f.assumptions)
    notes = [*bounded_over(variants), *said, *_around_training(expected), *(e.sentence for e in widening)]
    return Estimate(
        allocated=allocated,
        required=required,
        reserved=reserved,
        device=device,
        peak_phase=top.phase,
        components={**components, "context": context[1] + beside.expected},
        timeline=steps,
        parameters=expected.parameters,
        trainable_parameters=expected.trainable,
        assumptions=tuple(notes),
        beside=beside,
        host_bytes=host_bytes(run, expected.setup, expected.parameters, expected.trainable),
    )


def _around_training(figures: _Figures) -> Iterator[str]:
    """What loading and saving hold, where that is more than what steps need."""
    if figures.loading > figures.reserved:
        yield f"loading reserves {figures.loading / 2**30:.1f} GiB, and returns what is free before the first step"
    if figures.unpacked > figures.required:
        yield (
            "transformers 5.0 to 5.3 may put all weights on the card before bitsandbytes packs them: loading takes up to "
            f"{figures.unpacked / 2**30:.1f} GiB"
        )
    if figures.cloned > figures.required:
        yield f"bitsandbytes 0.38 and 0.39.0 copy 8-bit weights to save a checkpoint: up to {figures.cloned / 2**30:.1f} GiB"


def _beside(setup: Setup, context: tuple[int, int, int], gpu: Gpu | None) -> Interval:
    """What the process holds on the card outside torch's allocator, more than a CUDA context that loads its kernels when they are used."""
    more = [max(0, eager - lazy) if setup.stack.eager_context else 0 for eager, lazy in zip(EAGER_CONTEXT, context, strict=True)]
    return Interval(*(a + b for a, b in zip(more, communicators(setup.sharding, gpu), strict=True)))


def _stretched(value: float, shares: Iterable[float]) -> float:
    """Independent effects add in square."""
    return value * float(1 + sum(share * share for share in shares) ** 0.5)


def _interval(values: list[int], shares: list[tuple[float, float]]) -> Interval:
    below = sum(low * low for low, _ in shares) ** 0.5
    above = sum(high * high for _, high in shares) ** 0.5
    return Interval(int(min(values) * (1 - below)), values[0], int(max(values) * (1 + above)))


def _figures(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> _Figures:
    """The figures of one scenario: those of the worst pipeline stage."""
    assumed: list[str] = []
    setup = dealt(run, setup_of(run, architecture, gpu, assumed))
    beside = rollouts(run, gpu)
    if beside:
        assumed.append(f"a vLLM in the same process holds {beside / 2**30:.1f} GiB during the training step")
    held = companions(run, setup, architecture)
    assumed += [companion.sentence for companion in held]
    setup = setup._replace(beside=beside, companions=sum(companion.nbytes for companion in held))
    if setup.stack.framework == "unsloth" and setup.logits == "fused":
        setup = setup._replace(loss_budget=unsloth_loss.budget(setup, architecture, gpu))
    found = {
        stage: _figures_of(
            setup._replace(stage=stage.name, under_way=stage.under_way, fills=stage.fills, layers=stage.layers),
            architecture,
            gpu,
            assumed,
        )
        for stage in pipeline.stages(run, setup.sharding, setup.layers)
    }
    worst = max(found, key=lambda stage: found[stage].allocated)
    others = [figures.allocated for stage, figures in found.items() if stage != worst]
    if not others:
        return found[worst]
    sentence = pipeline.comparison(setup.sharding, worst, found[worst].allocated, others)
    return found[worst]._replace(assumptions=(*assumed, sentence))


def _figures_of(setup: Setup, architecture: Architecture, gpu: Gpu | None, assumed: list[str]) -> _Figures:
    whole, architecture = architecture, divided(architecture, setup)
    program, events, repeats = _events(setup, architecture)
    peaks = tuple(_merged(events.peaks))
    peak = max((p.total for p in peaks if p.phase != "load"), default=0)
    room = gpu.capacity_bytes - gpu.context_bytes - communicators(setup.sharding, gpu)[1] if gpu is not None else 0
    replays = allocator.Replays(events, setup.expandable_segments, peak if peak < room < 2 * peak else 0)
    replayed = replays.unlimited()
    allocated = peak + replayed.slack
    reserved = max(replayed.reserved, allocated)
    left = Interval(reserved, reserved, reserved)
    required = reserved
    if setup.expandable_segments:
        required = allocated
    elif allocated < room < reserved * 1.1:
        required = replays.smallest_capacity(allocated, max(reserved, replayed.loading), room)
        if required <= room < reserved:  # the cache gives back what the card does not have
            least = replays.on_card(required).left
            try:
                shown = replays.on_card(room)
                reserved, some = shown.reserved, shown.left
            except DoesNotComplete:  # less was enough, but blocks lie differently with more: it holds on to all there is
                reserved = some = room
            left = Interval(min(least, some), some, reserved)
            if some < reserved:
                between = f"what it shows lies between {left.low / 2**30:.1f} GiB and all of it"
                assumed.append(f"the card cannot hold the allocator's whole cache: {between}")
    elif reserved > allocated:
        required = (allocated + reserved) // 2
    required = max(required, *(p.total for p in peaks if p.phase == "load"), 0)
    counted = _counted(program, repeats)
    total, trainable = sum(count for _, count in counted), sum(count for p, count in counted if p.node is not None)
    if is_divided(setup) and whole.params:
        adapters = sum(count for p, count in counted if p.kind == "adapter")
        total, trainable = whole.params + adapters, trainable if setup.adapter else whole.params
    replays.forget()
    weights = sum(count for p, count in counted if p.kind != "adapter")
    unpacked, block = loading.unpacked(setup, weights), loading.warmed(setup, weights)
    # Where the card is nearly filled, the block is smaller, or given back.
    if block and not 0 < room < 1.1 * max(block, reserved):
        replays = allocator.Replays(loading.after_block(events, block), setup.expandable_segments)
        reserved = max(replays.unlimited().reserved, allocated)
        left = Interval(reserved, reserved, reserved)
        replays.forget()
    cloned = saving.cloned(setup, counted, peaks, gpu)
    program.builder.forget()
    return _Figures(
        allocated, required, reserved, replayed.loading, left, unpacked, cloned, peaks, total, trainable, setup, tuple(assumed)
    )


def _merged(peaks: Sequence[Peak]) -> Iterator[Peak]:
    """The phases that reports show: an evaluation is one phase, and so is a generation; a recorded first step and mere frees are none."""
    yield from (peak for peak in peaks if peak.phase in PHASES)
    for whole in ("evaluation", "generation"):
        parts = [peak for peak in peaks if peak.phase.startswith(f"{whole}_")]
        if parts:
            yield max(parts, key=lambda peak: peak.total)._replace(phase=whole)


def _counted(program: Program, repeats: tuple[timeline.Repeated, ...]) -> list[tuple[Parameter, int]]:
    """Each parameter with the weights that it and those it stands for have."""
    copies = {r.first + place: r.copies for r in repeats for place in range(r.period)}
    return [(p, p.logical * (1 + copies.get(p.layer, 0))) for p in program.parameters]


def _events(setup: Setup, architecture: Architecture) -> tuple[Program, Events, tuple[timeline.Repeated, ...]]:
    """Record a few layers and repeat them, or record all of them where they differ."""
    if setup.layers <= 0:
        page_of(architecture.model_type, setup.stack.framework)  # a type without a page says that first
        raise CannotEstimate(f"the number of layers of {architecture.name} is not known")
    for few in plans(setup, architecture):
        try:
            shorter = few.architecture is not architecture
            own = setup._replace(layers=few.layers, repeats=few.repeats) if shorter else setup
            program = record(own, few.architecture, few.layers)
            return program, timeline.unrolled(program.ledger, few.layers, setup.layers, few.repeats), few.repeats
        except timeline.NotUniform:
            pass
    program = record(setup, architecture, setup.layers)
    return program, timeline.unrolled(program.ledger, setup.layers, setup.layers), ()
