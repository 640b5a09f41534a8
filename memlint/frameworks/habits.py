"""Habits of hand-written training code that keep memory alive: seen in the syntax alone, reported as problems of the run.

- `eval-without-no-grad`: a loop after `model.eval()` calls the model and nothing turns gradients off
- `loss-graph-leak`: a training loop adds up or collects a loss that still carries its graph
- `retain-graph`: the only backward of a loop keeps its graph
- `checkpoint-loaded-on-gpu`: `torch.load` of a checkpoint without `map_location`
- `model-built-in-loop`: a loop loads a model and trains it while the one of the round before is still referred to
- `first-gpu-for-all`: a model goes to "the" GPU before it is wrapped for several, and no rank chooses its own
- `pixels-unbounded`: a processor of Qwen-VL type without a cap on the pixels of an image

Each is reported only where nothing in sight speaks against it; what happens in other modules is not followed.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from memlint.facts import Problem
from memlint.read.pyeval.grammar import Text
from memlint.source import ReadError, Source

_CUTS_GRAPH = {"item", "detach", "tolist", "numpy", "data", "float", "int"}
"""Calls and attributes whose value no longer carries a graph."""
_NO_GRAD = {"no_grad", "inference_mode"}

Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = Iterator[tuple[str, str, ast.AST]]


@lru_cache(maxsize=8)
def habits(source: Source) -> tuple[Problem, ...]:
    """The habits found in a script, once for a script of many launches; none when no word of theirs is in it or it does not parse."""
    code = source.text
    searches = [
        search
        for search, words in _SEARCHES
        if all(word in code for word in words) and not any(word in code for word in _EXCUSES.get(search, ()))
    ]
    if not searches:
        return ()
    try:
        text = Text(source)
    except ReadError:
        return ()
    found = {id(node): (name, message, node) for search in searches for name, message, node in search(text.tree)}
    return tuple(Problem(name, message, text.span(node)) for name, message, node in found.values())


# Evaluation with gradients


def _evaluation(tree: ast.Module) -> Found:
    """`model.eval()`, then a loop in the same block that calls `model(...)` with gradients on."""
    if any(_name(call.func) == "set_grad_enabled" for call in _calls(tree)):
        return
    quiet = _called_without_gradients(tree)
    for body, function in _blocks(tree):
        if function is not None and (function.decorator_list or function.name in quiet):
            continue
        for position, statement in enumerate(body):
            model = _receiver(statement, "eval")
            if model is None:
                continue
            for later in body[position + 1 :]:
                if _receiver(later, "train") == model:
                    break
                if isinstance(later, Loop) and not _differentiates(later) and (call := _grad_call(later.body, model)):
                    message = f"{model} is evaluated with gradients on: every batch keeps its activations until the outputs go"
                    yield "eval-without-no-grad", message, call
                    break


def _grad_call(body: Iterable[ast.stmt], model: str) -> ast.Call | None:
    """The first call of the model outside a `no_grad` block."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)) and any(_turns_off(item.context_expr) for item in statement.items):
            continue
        inner = [block for block, _ in _own_blocks(statement)]
        for block in inner:
            if (call := _grad_call(block, model)) is not None:
                return call
        if not inner:
            for call in _calls(statement):
                if ast.unparse(call.func) == model:
                    return call
    return None


def _called_without_gradients(tree: ast.Module) -> set[str]:
    """Functions that are called inside a `no_grad` block somewhere in the file."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith)) and any(_turns_off(item.context_expr) for item in node.items)
    ]
    return {_name(call.func) for block in blocks for call in _calls(block)}


def _turns_off(expression: ast.expr) -> bool:
    return _name(expression.func if isinstance(expression, ast.Call) else expression) in _NO_GRAD


def _differentiates(node: ast.AST) -> bool:
    """Something below needs the graph: a backward pass or `autograd.grad`."""
    return any(_name(call.func) in ("backward", "grad", "manual_backward") for call in _calls(node))


# Losses that keep their graph


def _leaks(tree: ast.Module) -> Found:
    """In a loop with a backward pass: `total += loss`, `losses.append(loss)` of what was differentiated."""
    differentiated = _differentiated(tree)
    for loop in _loops(tree):
        inside = list(_statements(loop.body))
        losses = {name for statement in inside for name in _differentiated(statement)} - _cut(inside)
        assigned = {_name(target) for statement in inside for target in _targets(statement)}
        for statement in inside:
            kept = _kept(statement)
            if kept is None:
                continue
            into, value = kept
            lives_on = into not in assigned and into not in differentiated
            if lives_on and into not in losses and _carries_graph(value, losses):
                message = f"{into} keeps the graph of every {ast.unparse(value)}: add {ast.unparse(value)}.item()"
                yield "loss-graph-leak", message, statement


def _differentiated(node: ast.AST) -> set[str]:
    """The names that `backward` is called on, or that are given to `accelerator.backward(...)`, `autograd.grad(...)`."""
    names: set[str] = set()
    for call in _calls(node):
        if _name(call.func) in ("backward", "manual_backward", "grad") and isinstance(call.func, ast.Attribute):
            subjects = [*call.args[:1], call.func.value]
            names |= {inner.id for subject in subjects for inner in ast.walk(subject) if isinstance(inner, ast.Name)}
    return names


def _kept(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """(the name that outlives the step, what is added to it)."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
            return ast.unparse(call.func.value), call.args[0]
    return None


def _carries_graph(value: ast.expr, losses: set[str]) -> bool:
    """A loss itself, or arithmetic on it, with nothing that cuts the graph."""
    if isinstance(value, ast.Name):
        return value.id in losses
    if isinstance(value, ast.BinOp):
        return _carries_graph(value.left, losses) or _carries_graph(value.right, losses)
    return False


def _cut(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that an assignment of the loop binds to a value without a graph (`loss = loss.item()`)."""
    return {
        _name(target)
        for statement in statements
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if any(_name(node) in _CUTS_GRAPH for node in ast.walk(statement.value) if isinstance(node, ast.expr))
    }


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a plain assignment binds anew in each round."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    elif isinstance(statement, ast.AnnAssign):
        yield statement.target


# Graphs kept on purpose, checkpoints on the GPU


def _retained(tree: ast.Module) -> Found:
    backwards = [call for call in _calls(tree) if _name(call.func) == "backward"]
    if len(backwards) != 1 or any(_name(call.func) == "grad" for call in _calls(tree)):
        return
    for keyword in backwards[0].keywords:
        if keyword.arg == "retain_graph" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
            message = "the graph is kept after the only backward pass: it lives on until the next forward replaces it"
            yield "retain-graph", message, keyword


def _loads(tree: ast.Module) -> Found:
    """`torch.load(path)` whose result goes into `load_state_dict`."""
    loads = {id(call): call for call in _calls(tree) if _loads_file(call.func) and _to_saved_device(call)}
    if not loads:
        return
    bound: dict[str, ast.Call] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and id(node.value) in loads:
            bound |= {_name(target): loads[id(node.value)] for target in node.targets}
    for call in _calls(tree):
        if _name(call.func) != "load_state_dict":
            continue
        for inner in (node for argument in call.args for node in ast.walk(argument)):
            load = loads.pop(id(inner), None) or (bound.get(inner.id) if isinstance(inner, ast.Name) else None)
            if load is not None:
                bound = {name: other for name, other in bound.items() if other is not load}
                message = "a checkpoint that was saved from a GPU is loaded back onto it, beside the model: map_location='cpu'"
                yield "checkpoint-loaded-on-gpu", message, load


def _loads_file(function: ast.expr) -> bool:
    return _name(function) == "load" and ast.unparse(function) == "torch.load"


def _to_saved_device(call: ast.Call) -> bool:
    """No map_location: storages go where they were. (Nobody maps a file that is not for the CPU.)"""
    return len(call.args) == 1 and not any(keyword.arg in ("map_location", "mmap", None) for keyword in call.keywords)


# Models per round, models on the first GPU


def _rebuilt(tree: ast.Module) -> Found:
    """In a loop: `model = X.from_pretrained(...)` and a training, and nothing lets go of the model before the next round."""
    for loop in _loops(tree):
        if isinstance(loop, ast.While):
            continue
        loads = [s for s in loop.body if isinstance(s, ast.Assign) and _loads_model(s.value)]
        if not loads:
            continue
        inside = list(_statements(loop.body))
        calls = [call for statement in inside for call in _calls(statement)]
        if any(isinstance(statement, ast.Delete) for statement in inside):
            continue
        if not any(_name(call.func) in ("train", "fit") and not call.args for call in calls):
            continue
        for load in loads:
            name = ast.unparse(load.targets[0])
            if not _let_go(inside, name):
                message = f"{name} of the round before is still there while the next one is loaded and trained: del it first"
                yield "model-built-in-loop", message, load
                break


def _loads_model(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _name(value.func) == "from_pretrained" and _is_model(value.func)


def _is_model(function: ast.expr) -> bool:
    owner = _name(function.value) if isinstance(function, ast.Attribute) else ""
    return "Model" in owner or "For" in owner


def _let_go(statements: Iterable[ast.stmt], name: str) -> bool:
    """`model = None` somewhere in the loop."""
    return any(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is None
        and name in (ast.unparse(target) for target in statement.targets)
        for statement in statements
    )


_WRAPPERS = {"DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"}
_CHOOSES_CARD = ("set_device", "CUDA_VISIBLE_DEVICES", "torch.cuda.device(", "set_default_device", "init_device", "Accelerator(")


def _first_card(tree: ast.Module) -> Found:
    """`DDP(model.cuda())` or `model.to("cuda")` before `DDP(model)`: every rank lands on card 0."""
    wraps = [call for call in _calls(tree) if _name(call.func) in _WRAPPERS and call.args]
    for wrap in wraps:
        target = wrap.args[0]
        if isinstance(target, ast.Call) and _to_current_card(target):
            yield "first-gpu-for-all", _FIRST_CARD, target
            continue
        for call in _calls(tree):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            before = owner is not None and ast.unparse(owner) == ast.unparse(target) and call.lineno < wrap.lineno
            if before and _to_current_card(call):
                yield "first-gpu-for-all", _FIRST_CARD, call
                break


_FIRST_CARD = "without torch.cuda.set_device(local_rank) every process puts its model on the first GPU"


def _to_current_card(call: ast.Call) -> bool:
    """`.cuda()` or `.to("cuda")`, without an index."""
    if _name(call.func) == "cuda":
        return not call.args and not call.keywords
    first = call.args[0] if _name(call.func) == "to" and call.args else None
    return isinstance(first, ast.Constant) and first.value == "cuda"


def _pixels(tree: ast.Module) -> Found:
    """`AutoProcessor.from_pretrained("Qwen/...-VL-...")` where nothing speaks of the size of images."""
    for call in _calls(tree):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if _name(call.func) == "from_pretrained" and owner is not None and _name(owner).endswith("Processor"):
            message = "nothing caps the pixels of an image: the processor's default allows 16,384 tokens for one image"
            yield "pixels-unbounded", message, call
            return


# Walking


def _calls(node: ast.AST) -> Iterable[ast.Call]:
    return _calls_of_file(node) if isinstance(node, ast.Module) else _walked(node)


def _walked(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


@lru_cache(maxsize=1)
def _calls_of_file(tree: ast.Module) -> tuple[ast.Call, ...]:
    """Every search wants them, and a walk over a file costs more than all else."""
    return tuple(_walked(tree))


def _name(expression: ast.expr) -> str:
    """The last name of a dotted one."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def _receiver(statement: ast.stmt, method: str) -> str | None:
    """`model` of a statement `model.eval()`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr == method:
            return ast.unparse(function.value)
    return None


def _own_blocks(statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], Function | None]]:
    """The blocks directly inside a statement, with the function they are the body of."""
    function = statement if isinstance(statement, Function) else None
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if isinstance(block, list) and block:
            yield block, function
    for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield inner.body, None


def _blocks(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], Function | None]]:
    """Every block of the file with the function around it; blocks without gradients are left out."""
    waiting: list[tuple[list[ast.stmt], Function | None]] = [(tree.body, None)]
    while waiting:
        body, function = waiting.pop()
        yield body, function
        for statement in body:
            if isinstance(statement, (ast.With, ast.AsyncWith)) and any(_turns_off(i.context_expr) for i in statement.items):
                continue
            waiting += [(block, own or function) for block, own in _own_blocks(statement)]


def _loops(tree: ast.Module) -> Iterator[Loop]:
    """Every loop of the file. Loops are statements: the many more nodes of expressions need no look."""
    waiting = deque([tree.body])
    while waiting:
        for statement in waiting.popleft():
            if isinstance(statement, Loop):
                yield statement
            waiting.extend(block for block, _ in _own_blocks(statement))


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop with those nested in it, but not those of functions defined there."""
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for block, _ in _own_blocks(statement):
                yield from _statements(block)


_SEARCHES: tuple[tuple[Callable[[ast.Module], Found], tuple[str, ...]], ...] = (
    (_evaluation, (".eval()",)),
    (_leaks, ("backward(", "loss")),
    (_retained, ("retain_graph",)),
    (_loads, ("torch.load(", "load_state_dict")),
    (_rebuilt, ("from_pretrained(", "for ")),
    (_first_card, ("init_process_group", "cuda")),
    (_pixels, ("Processor.from_pretrained", "-VL")),
)
"""Each search with the words without which it finds nothing: most scripts are never parsed for it."""
_EXCUSES: dict[Callable[[ast.Module], Found], tuple[str, ...]] = {
    _first_card: _CHOOSES_CARD,
    _pixels: ("pixels", "PIXELS", "MAX_TOKEN_NUM", "resize", "Resize", "thumbnail", "image_size", ".size[", "big_images"),
}
"""Words with which a search finds nothing: another line answers for it."""
