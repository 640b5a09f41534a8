"""Functions that other functions start: in processes of their own, or again with a smaller batch."""

from __future__ import annotations

from memlint.facts import Fact, default, fixed
from memlint.frameworks.native import place
from memlint.frameworks.state import Collected, instances
from memlint.read.pyeval.calls import call_value
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Instance, Native, Symbol


def started(machine: Machine, collected: Collected, tail: str, call: Call) -> Fact | None:
    """Functions that start another function of the script in processes of their own."""
    if tail in {"notebook_launcher", "debug_launcher"}:
        args = call.argument("args", 1)
        count = call.argument("num_processes", 2)
        if count is not None and count.known:
            collected.process_facts["parallel.gpus"] = count
        return call_value(machine, call.args[0], _spread(call, args, ())) if call.args else None
    if tail in {"spawn", "start_processes"} and call.args:
        count = call.argument("nprocs", 2)
        if count is not None and count.known and isinstance(count.value, int):
            collected.process_facts["parallel.gpus"] = count
        return call_value(machine, call.args[0], _spread(call, call.argument("args", 1), (fixed(0, call.span),)))
    if tail in {"TorchTrainer", "AccelerateTrainer"}:
        return fixed(Instance(Symbol(f"ray.{tail}"), call, {"scaling_config": call.argument("scaling_config", 2)}), call.span)
    if tail == "find_executable_batch_size":
        if call.args:
            return shrinking(machine, collected, call.args[0], None)
        start = call.kwargs.get("starting_batch_size") or default(128, "accelerate", call.span)
        return fixed(Instance(Symbol("accelerate.find_executable_batch_size"), call, {".start": start}), call.span)
    return None


def worked(machine: Machine, collected: Collected, trainer: Instance) -> Fact:
    """Ray Train's `TorchTrainer(function, train_loop_config=..., scaling_config=...).fit()`: the function in one process a worker."""
    call = trainer.call
    function = call.argument("train_loop_per_worker", 0)
    config = call.argument("train_loop_config", 1)
    for scaling in instances(trainer.slots["scaling_config"]):
        workers = scaling.slots.get("num_workers") or scaling.call.argument("num_workers", 1)
        if isinstance(workers, Fact) and workers.known and isinstance(workers.value, int):
            collected.process_facts["parallel.gpus"] = workers
            collected.process_facts["parallel.strategy"] = workers.with_value("ddp" if workers.value > 1 else "none")
    if function is None:
        return fixed(None, call.span)
    return call_value(machine, function, Call("worker", (config,) if config is not None else (), {}, call.span))


def shrinking(machine: Machine, collected: Collected, function: Fact, start: Fact | None) -> Fact:
    """accelerate's `find_executable_batch_size`: the function gets a batch size that is halved while memory runs out."""
    size = start or default(128, "accelerate: starting_batch_size")
    collected.process_facts["batch.auto_find"] = fixed(True, place(function))

    def invoke(call: Call) -> Fact:
        return machine.call(function, Call(call.name, (size, *call.args), call.kwargs, call.span, call.open))

    return fixed(Native("find_executable_batch_size", invoke, (function,)), place(function))


def _spread(call: Call, args: Fact | None, first: tuple[Fact, ...]) -> Call:
    items = args.value.items if args is not None and isinstance(args.value, Array) else ()
    return Call(call.name, (*first, *items), {}, call.span, "" if args is None or items else "passed by a launcher")
