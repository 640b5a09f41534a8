"""`memlint estimate`: what the memory consists of, how it moves through a step, which cards hold it, and the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memlint.assess import DOES_NOT_FIT, FITS, TIGHT, Assessment, Verdict
from memlint.fixes import Proposal
from memlint.gpus import Gpu
from memlint.memory.result import Estimate, Interval
from memlint.report.breakdown import component_rows, components, interval, timeline_rows, verdict_words
from memlint.report.excerpt import error_line, place
from memlint.report.facts import facts_object
from memlint.report.json import dump
from memlint.report.style import Style
from memlint.report.text import code, markdown, parameters, plain, size
from memlint.source import ReadError
from memlint.typed import Any, NamedTuple


class Planned(NamedTuple):
    """A proposal, and what a card must then have (required memory and the context), which is what decides."""

    proposal: Proposal
    needed_bytes: int


class Answer(NamedTuple):
    """Everything `memlint estimate` says about one run. `verdicts[0]` is the target card's when there is a target."""

    assessment: Assessment
    verdicts: tuple[Verdict, ...] = ()
    plan: tuple[Planned, ...] = ()
    micro_batch: int | None = None
    """The largest that fits the target; 0 when not even one sample does."""
    sequence: int | None = None
    smallest: Gpu | None = None
    """The smallest card that would do."""


def render_json(answers: Iterable[Answer], errors: Iterable[ReadError]) -> str:
    """`memlint.estimate.v1`, with what could not be read as in `memlint.facts.v1`."""
    document = {
        "schema": "memlint.estimate.v1",
        "runs": [_object(answer) for answer in answers],
        "errors": [{"path": error.path, "line": error.line, "message": error.message} for error in errors],
    }
    return dump(document)


def _object(answer: Answer) -> dict[str, Any]:
    assessment = answer.assessment
    estimate = assessment.estimate
    found: dict[str, Any] = {
        "path": assessment.run.path,
        "line": assessment.run.span.line,
        "facts": facts_object(assessment.run),
        "estimate": _estimate_object(estimate) if estimate else None,
    }
    if assessment.why_not:
        found["why_not"] = assessment.why_not
    found["verdicts"] = [
        {"gpu": v.gpu.name, "capacity_bytes": v.gpu.capacity_bytes, "verdict": v.verdict} for v in answer.verdicts
    ]
    found["largest"] = {"micro_batch_size": answer.micro_batch, "sequence_length": answer.sequence}
    found["plan"] = [
        {
            "title": planned.proposal.title,
            "safety": planned.proposal.safety.value,
            "changes": dict(planned.proposal.changes),
            "device_bytes_after": planned.proposal.device_bytes_after,
            "needed_bytes_after": planned.needed_bytes,
            "verdict_after": planned.proposal.verdict_after,
        }
        for planned in answer.plan
    ]
    return found


def _estimate_object(estimate: Estimate) -> dict[str, Any]:
    return {
        "peak_allocated_bytes": _interval_object(estimate.allocated),
        "required_bytes": _interval_object(estimate.required),
        "peak_reserved_bytes": _interval_object(estimate.reserved),
        "device_bytes": _interval_object(estimate.device),
        "host_bytes": _interval_object(estimate.host_bytes) if estimate.host_bytes else None,
        "peak_phase": estimate.peak_phase,
        "components": dict(estimate.components),
        "timeline": [{"phase": i.phase, "peak_bytes": i.peak_bytes, "components": dict(i.components)} for i in estimate.timeline],
        "parameters": estimate.parameters,
        "trainable_parameters": estimate.trainable_parameters,
        "assumptions": list(estimate.assumptions),
    }


def _interval_object(amount: Interval) -> dict[str, int]:
    return {"low": amount.low, "expected": amount.expected, "high": amount.high}


def render_full(answers: Sequence[Answer], errors: Iterable[ReadError], style: Style) -> str:
    """For people, in the terminal."""
    blocks = ["\n".join(_run(answer, style)) for answer in answers]
    errors = list(errors)
    if not answers and not errors:
        blocks.append("no training run found")
    blocks += [error_line(error, style) for error in errors]
    return "\n\n".join(blocks) + "\n"


def _run(answer: Answer, style: Style) -> list[str]:
    assessment = answer.assessment
    estimate = assessment.estimate
    lines = [style.bold(place(assessment.run.span)), f"  {headline(assessment)}"]
    if estimate is None:
        return [*lines, "", f"  {style.paint('no estimate', '1;33')}: {plain(assessment.why_not)}"]
    lines += ["", f"  {style.bold('Peak')} in {estimate.peak_phase.replace('_', ' ')}"]
    lines += [f"    {row}" for row in component_rows(estimate, style)]
    lines += [f"    {name:<17}{interval(amount, style)}  {style.dim(why)}" for name, amount, why in _four_numbers(estimate)]
    if estimate.host_bytes and _uses_host(assessment):
        lines.append(f"    {'host':<17}{interval(estimate.host_bytes, style)}  {style.dim(HOST)}")
    gpu = assessment.gpu
    room = gpu.capacity_bytes - estimate.components.get("context", 0) if gpu else None
    lines += ["", f"  {style.bold('One step')}", *(f"    {row}" for row in timeline_rows(estimate, room, style))]
    lines += ["", *_verdict_lines(answer, style)]
    if answer.plan:
        lines += ["", f"  {style.bold('Plan')}: {_promise(answer.plan)}, the smallest change first"]
        lines += [
            f"    {number}. {plain(p.proposal.title)}: {size(p.needed_bytes)} needed ({p.proposal.safety.value})"
            for number, p in enumerate(answer.plan, 1)
        ]
    if estimate.assumptions:
        lines += ["", f"  {style.bold('Assumed')}", *(f"    - {plain(text)}" for text in estimate.assumptions)]
    return lines


HOST = "memory of one node, its data loaders not included"


def _uses_host(assessment: Assessment) -> bool:
    """Host memory is a question: several processes load the model, or states rest there."""
    value = assessment.run.value
    offloads = any(value(f"parallel.offload_{what}", "none") != "none" for what in ("params", "optimizer"))
    return offloads or int(value("parallel.gpus", 1) or 1) * int(value("parallel.nodes", 1) or 1) > 1


def _promise(plan: Sequence[Planned]) -> str:
    sure = plan[0].proposal.verdict_after == FITS
    return "each of these makes it fit" if sure else "none fits for sure, each of these may"


def headline(assessment: Assessment) -> str:
    """The run in one line: model, what is trained, how, on what."""
    run, estimate = assessment.run, assessment.estimate
    words = [plain(str(run.value("model.id", "model not known")))]
    if estimate:
        trained = parameters(estimate.trainable_parameters)
        share = f", {trained} trained" if estimate.trainable_parameters != estimate.parameters else ", all trained"
        words[0] += f" ({parameters(estimate.parameters)} parameters{share})"
    quantised, adapter = run.value("quantization.method", "none"), run.value("adapter.method", "none")
    words += [plain(str(word)) for word in (adapter, quantised) if word != "none"]
    for key, name in (
        ("precision", ""),
        ("batch.micro_batch_size", "micro-batch "),
        ("batch.sequence_length", "sequence "),
        ("optimizer.name", ""),
    ):
        if run.fact(key).known:
            words.append(f"{name}{plain(str(run.value(key)))}")
    if run.value("checkpointing.enabled"):
        words.append("checkpointing")
    gpus, nodes = run.value("parallel.gpus", 1), run.value("parallel.nodes", 1)
    strategy = run.value("parallel.strategy", "none")
    if strategy != "none":
        words.append(f"{plain(str(strategy))} on {gpus} GPUs" + (f" x {nodes} nodes" if nodes != 1 else ""))
    return ", ".join(words)


def _four_numbers(estimate: Estimate) -> list[tuple[str, Interval, str]]:
    return [
        ("allocated", estimate.allocated, "live tensors at the peak"),
        ("required", estimate.required, "the least with which a step completes"),
        ("reserved", estimate.reserved, "held by the caching allocator"),
        ("device", estimate.device, "with the CUDA context: what nvidia-smi shows"),
    ]


def _verdict_lines(answer: Answer, style: Style) -> list[str]:
    assessment = answer.assessment
    amount = assessment.needed
    lines = []
    rest = list(answer.verdicts)
    if assessment.gpu and amount:
        gpu = assessment.gpu
        rest = [verdict for verdict in rest if verdict.gpu.name != gpu.name]
        lines.append(
            f"  {style.bold('Verdict')}: {verdict_words(assessment.verdict, style)}: {interval(amount, style)} needed, "
            f"{size(gpu.capacity_bytes)} usable on {gpu.name}"
        )
        if assessment.why_not:
            lines.append(f"    {plain(assessment.why_not)}")
        if answer.micro_batch is not None:
            what = f"micro-batch {answer.micro_batch}" if answer.micro_batch else "not even a micro-batch of 1"
            lines.append(f"    largest that fits: {what}, all else as it is")
        if answer.sequence:
            lines.append(f"    or a sequence length of {answer.sequence} at the present micro-batch")
    elif answer.smallest:
        lines.append(f"  No target card is named; the smallest that would do: {style.bold(answer.smallest.name)}")
        lines.append("    name one with --gpu, `# memlint: gpu=...` or [tool.memlint] gpu")
    else:
        lines.append("  No target card is named, and no single card of the catalogue would do")
    if rest:
        lines += ["", f"  {style.bold('Other cards')}"]
        lines += [f"    {v.gpu.name:<22}{size(v.gpu.capacity_bytes):>10}  {verdict_words(v.verdict, style)}" for v in rest]
    return lines


def render_markdown(answers: Sequence[Answer], errors: Iterable[ReadError]) -> str:
    """For a pull request or a wiki page."""
    blocks = [_run_markdown(answer) for answer in answers]
    blocks += [f"Cannot read {code(f'{e.path}:{e.line}')}: {markdown(e.message)}" for e in errors]
    return "\n\n".join(blocks) + "\n"


def _run_markdown(answer: Answer) -> str:
    assessment = answer.assessment
    estimate, amount = assessment.estimate, assessment.needed
    lines = [f"### {code(place(assessment.run.span))}", "", markdown(headline(assessment)), ""]
    if estimate is None or amount is None:
        return "\n".join([*lines, f"No estimate: {markdown(assessment.why_not)}"])
    style = Style()
    if assessment.gpu:
        verdict = verdict_words(assessment.verdict, style)
        lines += [
            f"**{verdict.capitalize()}** {markdown(assessment.gpu.name)}: {interval(amount, style)} needed, "
            f"{size(assessment.gpu.capacity_bytes)} usable. {markdown(assessment.why_not)}".rstrip(),
            "",
        ]
    lines += ["| Component | At the peak |", "|---|---:|"]
    lines += [f"| {name} | {size(count)} |" for name, count in components(estimate)]
    lines += [f"| **{name}** | {interval(value, style)} |" for name, value, _ in _four_numbers(estimate)]
    if estimate.host_bytes and _uses_host(assessment):
        lines.append(f"| **host** ({HOST}) | {interval(estimate.host_bytes, style)} |")
    if answer.verdicts:
        lines += ["", "| Card | Usable | Verdict |", "|---|---:|---|"]
        lines += [
            f"| {markdown(v.gpu.name)} | {size(v.gpu.capacity_bytes)} | {verdict_words(v.verdict, style)} |"
            for v in answer.verdicts
        ]
    if answer.plan:
        lines += ["", "| Change | Needed then | |", "|---|---:|---|"]
        lines += [f"| {markdown(p.proposal.title)} | {size(p.needed_bytes)} | {p.proposal.safety.value} |" for p in answer.plan]
    return "\n".join(lines)


def needs_plan(assessment: Assessment) -> bool:
    """True when the run has no comfortable place on its card."""
    return assessment.verdict in (DOES_NOT_FIT, TIGHT)
