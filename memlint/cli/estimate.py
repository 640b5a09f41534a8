"""`memlint estimate`: the memory of each run in full, and what to change when it does not fit."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from memlint.assess import Assessment, Verdict, estimate_with, largest_micro_batch, largest_sequence, smallest_card, verdicts_for
from memlint.cli.arguments import Parser
from memlint.cli.failure import Failure
from memlint.cli.options import add_formats, add_settings, configs, over_settings, write_file
from memlint.cli.session import Session, from_stdin, gather
from memlint.fixes import Proposal
from memlint.fixes import plan as make_plan
from memlint.gpus import Gpu, all_gpus
from memlint.report.estimate import Answer, Planned, needs_plan, render_full, render_json, render_markdown
from memlint.report.excerpt import error_line
from memlint.report.style import Style, for_stream
from memlint.source import ReadError


def run(arguments: Sequence[str]) -> int:
    """Estimate the runs of the paths; 0 also when they do not fit (that is what `check` is for)."""
    parser = Parser("estimate", "What the memory of a training run consists of, whether it fits, and what would make it fit.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="scripts, notebooks, configs or a run.yaml; - is standard input")
    add_formats(parser, ("full", "json", "markdown"))
    add_settings(parser)
    parser.add_argument("--stdin-filename", metavar="NAME", help="the name to treat standard input as")
    parser.add_argument(
        "--hf", action="store_true", help="ask the installed transformers about a model's config.json (extra [hf])"
    )
    counts, arguments = _counts(arguments)
    options = parser.parse_args(arguments)
    paths, texts = from_stdin(options.paths, options.stdin_filename)
    if options.hf:
        _require_transformers()
    layer = over_settings(options)
    session = Session(configs(options), lambda settings: layer(settings)._replace(hf=options.hf), texts)
    inputs = gather(paths, session)
    answers: list[Answer] = []
    scaled: list[Assessment] = []
    errors: list[ReadError] = []
    for path in inputs.files:
        found = session.read(path)
        assessed, broken = session.assess(found)
        errors += [*session.troubles(found), *broken] if path in inputs.named else broken
        if not counts:
            answers += [answer(assessment) for assessment in assessed]
            continue
        scaled += assessed
    if counts:
        _scale(scaled, counts, options.format, errors)
        return 2 if errors else 0
    for name, file in options.format or [("full", None)]:
        style = Style() if file else for_stream(sys.stdout)
        if name == "json":
            text = render_json(answers, errors)
        elif name == "markdown":
            text = render_markdown(answers, errors)
        else:
            text = render_full(answers, errors, style)
        if file:
            write_file(file, text)
        else:
            sys.stdout.write(text)
    return 2 if errors else 0


def _require_transformers() -> None:
    from memlint.models import hf

    try:
        hf.require()
    except hf.NotInstalled as error:
        raise Failure(str(error)) from None


def _counts(arguments: Sequence[str]) -> tuple[tuple[int, ...], list[str]]:
    """Several numbers in `--gpus 1,2,4`: these, and the arguments without the option."""
    kept = list(arguments)
    counts: tuple[int, ...] = ()
    for position, argument in enumerate(kept):
        name, equals, value = argument.partition("=")
        values = value if equals else kept[position + 1] if position + 1 < len(kept) else ""
        numbers = values.split(",")
        if name == "--gpus" and len(numbers) > 1 and all(number.isdecimal() and int(number) > 0 for number in numbers):
            counts = tuple(map(int, numbers))
            del kept[position : position + (1 if equals else 2)]
            break
    return counts, kept


def _scale(
    assessments: Sequence[Assessment],
    counts: Sequence[int],
    formats: Sequence[tuple[str, str | None]],
    errors: Sequence[ReadError],
) -> None:
    """Print what each of so many GPUs needs, for each strategy: a chart, a table in Markdown, or JSON."""
    from memlint.report import scaling
    from memlint.scaling import scaled

    runs = [(assessment, scaled(assessment, counts)) for assessment in assessments]
    formats = formats or [("full", None)]
    if all(name != "json" for name, _ in formats):
        sys.stderr.writelines(f"{error_line(error, for_stream(sys.stderr))}\n" for error in errors)
    for name, file in formats:
        if name == "json":
            text = scaling.document(runs, counts, errors)
        elif name == "markdown":
            text = "\n".join(scaling.table(assessment, counts, rows) for assessment, rows in runs)
        else:
            style = Style() if file else for_stream(sys.stdout)
            text = "".join(scaling.chart(assessment, counts, rows, style) for assessment, rows in runs)
        if file:
            write_file(file, text)
        else:
            sys.stdout.write(text)


def answer(assessment: Assessment) -> Answer:
    """Everything that can be said about one run."""
    if assessment.estimate is None:
        return Answer(assessment, verdicts=_only_target(assessment))
    cards = sorted((gpu for gpu in all_gpus() if gpu.common), key=lambda gpu: (gpu.capacity_bytes, gpu.name))
    if assessment.gpu is not None:
        cards = [assessment.gpu, *(card for card in cards if card.name != assessment.gpu.name)]
    proposals = make_plan(assessment) if needs_plan(assessment) else ()
    return Answer(
        assessment,
        verdicts=verdicts_for(assessment.estimate, cards),
        plan=tuple(planned for proposal in proposals if (planned := _planned(proposal, assessment))),
        micro_batch=largest_micro_batch(assessment),
        sequence=largest_sequence(assessment),
        smallest=smallest_card(assessment.estimate),
    )


def _planned(proposal: Proposal, assessment: Assessment) -> Planned | None:
    needed = assessment._replace(estimate=estimate_with(assessment, proposal.changes)).needed
    return Planned(proposal, needed.expected) if needed else None


def _only_target(assessment: Assessment) -> tuple[Verdict, ...]:
    gpu: Gpu | None = assessment.gpu
    return (Verdict(gpu, "unknown"),) if gpu else ()
