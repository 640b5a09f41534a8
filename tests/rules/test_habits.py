"""Memory habits seen in the syntax of a training script, and the code that looks like them and is fine."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from memlint.frameworks.habits import habits
from memlint.source import Kind, Source


def found(text: str) -> list[tuple[str, int]]:
    problems = habits(Source("train.py", Kind.PYTHON, dedent(text)))
    return [(problem.name, problem.span.line) for problem in problems]


def loop(body: str, before: str = "total = 0\nlosses = []", after: str = "") -> str:
    step = "loss = model(x).loss\nloss.backward()\noptimizer.step()\n"
    return f"{before}\nfor x in loader:\n" + indent(step + dedent(body), "    ") + f"\n{dedent(after)}"


@pytest.mark.parametrize(
    "body",
    [
        "total += loss",
        "losses.append(loss)",
        "total += loss * x.size(0)",
        "if log:\n    total += loss / 2",
        "self.sum += 1\nlosses.append(loss)",
    ],
)
def test_a_loss_that_keeps_its_graph(body: str) -> None:
    assert [name for name, _ in found(loop(body))] == ["loss-graph-leak"]


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("total += loss.item()", ""),
        ("total += loss.detach()", ""),
        ("total += float(loss)", ""),
        ("total += loss.item() * x.size(0)", ""),
        ("losses.append(loss.detach().cpu())", ""),
        ("losses.append(loss.data)", ""),
        ("steps += 1", ""),
        ("names.append(x)", ""),
        ("loss = loss.item()\ntotal += loss", ""),
        ("total += loss", "total.backward()"),
        ("losses.append(loss)", "torch.stack(losses).sum().backward()"),
        ("total = 0\ntotal += loss", ""),
        ("total += other", ""),
    ],
)
def test_what_is_no_leak(body: str, after: str) -> None:
    assert found(loop(body, after=after)) == []


def test_losses_that_are_summed_and_differentiated_together() -> None:
    text = """\
        for x in loader:
            loss = 0
            for head in heads:
                loss += head(x)
            loss.backward()
    """
    assert found(text) == []


def test_accelerate_and_scaler_are_backward_passes_too() -> None:
    text = """\
        for x in loader:
            loss = model(x).loss
            {}
            total += loss
    """
    assert found(text.format("accelerator.backward(loss)")) == [("loss-graph-leak", 4)]
    assert found(text.format("scaler.scale(loss / steps).backward()")) == [("loss-graph-leak", 4)]


EVALUATION = """\
    def evaluate(model, loader):
        model.eval()
        for batch in loader:
            outputs = model(**batch)
            metric.add(outputs)
"""


def test_evaluation_with_gradients() -> None:
    assert found(EVALUATION) == [("eval-without-no-grad", 4)]


@pytest.mark.parametrize(
    "text",
    [
        EVALUATION.replace("    def evaluate", "    @torch.no_grad()\n    def evaluate"),
        EVALUATION.replace("    def evaluate", "    @evaluation_mode\n    def evaluate"),
        EVALUATION + "    with torch.inference_mode():\n        evaluate(model, loader)\n",
        "    torch.set_grad_enabled(False)\n" + EVALUATION,
        EVALUATION.replace("metric.add(outputs)", "outputs.energy.backward()"),
        EVALUATION.replace("metric.add(outputs)", "torch.autograd.grad(outputs.energy, batch)"),
        EVALUATION.replace("model(**batch)", "model.generate(**batch)"),
        EVALUATION.replace("model(**batch)", "other(**batch)"),
        EVALUATION.replace("        for batch", "        model.train()\n        for batch"),
        """\
        model.eval()
        with torch.no_grad():
            for batch in loader:
                model(batch)
        """,
        """\
        model.eval()
        for batch in loader:
            with torch.no_grad(), autocast():
                model(batch)
        """,
        """\
        with torch.no_grad():
            model.eval()
            for batch in loader:
                model(batch)
        """,
        """\
        teacher.eval()
        for batch in loader:
            loss = distill(model(batch), teacher(batch))
            loss.backward()
        """,
    ],
)
def test_evaluation_that_is_fine(text: str) -> None:
    assert [name for name, _ in found(text)] == []


def test_evaluation_inside_another_block() -> None:
    text = """\
        for epoch in range(3):
            model.eval()
            for batch in loader:
                with autocast():
                    if batch:
                        model(batch)
    """
    assert found(text) == [("eval-without-no-grad", 6)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("for x in y:\n    loss.backward(retain_graph=True)\n", ["retain-graph"]),
        ("for x in y:\n    loss.backward(retain_graph=False)\n", []),
        ("for x in y:\n    d.backward(retain_graph=True)\n    g.backward()\n", []),
        ("for x in y:\n    d.backward(retain_graph=True)\n    torch.autograd.grad(d, x)\n", []),
    ],
)
def test_retained_graphs(text: str, names: list[str]) -> None:
    assert [name for name, _ in found(text)] == names


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('model.load_state_dict(torch.load("a.pt"))\n', [1]),
        ('state = torch.load(path)\nmodel.load_state_dict(state["model"])\noptimizer.load_state_dict(state["opt"])\n', [1]),
        ('model.load_state_dict(torch.load("a.pt", map_location="cpu"))\n', []),
        ('model.load_state_dict(torch.load("a.pt", device))\n', []),
        ('model.load_state_dict(torch.load("a.pt", **options))\n', []),
        ('data = torch.load("dataset.pt")\nmodel.load_state_dict(other)\n', []),
        ('model.load_state_dict(load_file("a.safetensors"))\n', []),
    ],
)
def test_checkpoints(text: str, lines: list[int]) -> None:
    assert found(text) == [("checkpoint-loaded-on-gpu", line) for line in lines]


@pytest.mark.parametrize("text", ["", "for x in (:\n    loss.backward()\n    total += loss\n", "print('loss.backward()')\n"])
def test_nothing_to_see(text: str) -> None:
    assert found(text) == []


FOLDS = """\
    for fold in folds:
        model = AutoModel.from_pretrained("bert-base-uncased")
        trainer = Trainer(model=model, args=args)
        trainer.train()
"""


def test_a_model_for_every_round() -> None:
    assert found(FOLDS) == [("model-built-in-loop", 2)]


@pytest.mark.parametrize(
    "text",
    [
        FOLDS + "        del model, trainer\n",
        FOLDS + "        model = None\n",
        FOLDS.replace("trainer.train()", "evaluate(trainer)"),
        FOLDS.replace("trainer.train()", "model.train(False)"),
        FOLDS.replace("AutoModel.", "AutoTokenizer."),
        "    def objective(trial):\n" + FOLDS.replace("    for fold in folds:\n", ""),
    ],
)
def test_rounds_that_let_go(text: str) -> None:
    assert found(text) == []


WRAPPED = """\
    torch.distributed.init_process_group("nccl")
    model = Net()
    model.to("cuda")
    model = DDP(model)
"""


def test_every_process_on_the_first_card() -> None:
    assert found(WRAPPED) == [("first-gpu-for-all", 3)]
    assert found(WRAPPED.replace('model.to("cuda")\n', "pass\n").replace("DDP(model)", "DDP(model.cuda())")) == [
        ("first-gpu-for-all", 4)
    ]


@pytest.mark.parametrize(
    "text",
    [
        WRAPPED.replace("model = Net()", "torch.cuda.set_device(rank)"),
        WRAPPED.replace('"cuda"', "device"),
        WRAPPED.replace('"cuda"', 'f"cuda:{rank}"'),
        WRAPPED.replace("model = Net()", 'os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)'),
        WRAPPED.replace("DDP(model)", "model"),
        WRAPPED.replace("model.to", "teacher.to"),
    ],
)
def test_processes_with_a_card_each(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('p = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct")\n', [1]),
        ('p = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", max_pixels=1000000)\n', []),
        ('p = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct")\nimage = image.resize((512, 512))\n', []),
        ('p = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct")\nsmall = image.size[0] < 512\n', []),
        ('p = AutoProcessor.from_pretrained("openai/clip")\n', []),
    ],
)
def test_images_of_any_size(text: str, lines: list[int]) -> None:
    assert found(text) == [("pixels-unbounded", line) for line in lines]
