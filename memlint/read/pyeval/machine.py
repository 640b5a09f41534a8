"""The state of one abstract run of a script: variables, branches, calls in progress, and what it may still spend.

Nothing of the script is executed: a `Machine` walks the syntax tree with facts instead of values. Where a condition is
not decided it walks both arms, undoes the first before the second, and joins what they changed.

One module, for what a branch changes and undoes is the state of one class.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.grammar import Text
from memlint.read.pyeval.joins import decider, merge, weaken
from memlint.read.pyeval.values import (
    ABSENT,
    REST,
    Attributes,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Object,
    Opaque,
    Scope,
    Symbol,
)
from memlint.source import Source, Span
from memlint.typed import Any, NamedTuple, Protocol

FUEL = 80_000
"""Nodes evaluated at most, about a second; of 1,900 training scripts and notebooks of public repositories the largest took 33,000."""
DEPTH = 24
"""Calls nested at most."""


class Files(Protocol):
    """Where a script's sibling modules and configs are read from (the project)."""

    def read(self, path: str) -> Source:
        """The file's text; raises `ReadError`."""


class Launch(Protocol):
    """What the interpreter needs of a launch command."""

    @property
    def argv(self) -> tuple[Fact, ...]:
        """The arguments after the script's name, as written; an unknown one may stand for several (`"$@"`)."""

    @property
    def env(self) -> Mapping[str, Fact]:
        """Environment variables that the launch sets."""


class Flow(Enum):
    """How a block of statements ended."""

    NEXT = auto()
    RETURN = auto()
    BREAK = auto()
    CONTINUE = auto()


class Halted(Exception):
    """The script stops here: `sys.exit`, `raise`, or a failing assertion."""


class OutOfFuel(Exception):
    """The script is larger than what is followed; what was found so far stands."""


class Semantics(NamedTuple):
    """How nodes are walked. A machine is given these functions, so that the modules that hold them need not know each other."""

    evaluate: Callable[[Machine, ast.expr], Fact]
    execute: Callable[[Machine, list[ast.stmt]], Flow]
    assign: Callable[[Machine, ast.expr, Fact], None]
    define: Callable[[Machine, ast.Lambda, str], Fact]
    call: Callable[[Machine, Fact, Call], Fact]
    """Call a value."""
    follow: Callable[[Machine, Function, Call], Fact]
    """Call a function of the script."""
    apply: Callable[[Machine, ast.Call], Fact]
    """A call expression."""
    attribute: Callable[[Machine, Fact, str, Span], Fact]
    set_attribute: Callable[[Machine, Fact, str, Fact], None]


class Library:
    """What the interpreter asks about names that are not read. The frameworks answer; the defaults know nothing."""

    def call(self, machine: Machine, name: str, call: Call) -> Fact | None:
        """The result of calling a library name, or None when nothing is known about it."""
        return None

    def method(self, machine: Machine, owner: Fact, name: str, call: Call) -> Fact | None:
        """The result of a method of a library object or of something unknown, or None."""
        return None

    def attribute(self, machine: Machine, owner: Instance, name: str, span: Span) -> Fact | None:
        """An attribute of a library object that was not set in the script, or None."""
        return None

    def construct(self, machine: Machine, instance: Instance, call: Call) -> None:
        """The constructor of a library base class runs for an object of a class written in the script."""

    def symbol(self, machine: Machine, name: str, span: Span) -> Fact | None:
        """The value of a library name that is a value rather than something to call (`sys.argv`), or None."""
        return None

    def decorate(self, machine: Machine, decorator: Fact, target: Fact, span: Span) -> Fact | None:
        """The result of a library decorator, or None when it leaves the function as it is."""
        return None

    def loop_ended(self, machine: Machine, loop: Loop) -> None:
        """The outermost loop of the script has ended."""

    def assigned(self, machine: Machine, owner: Fact, name: str, value: Fact) -> None:
        """An attribute of something unknown was set (`parameter.requires_grad = False`)."""

    def strided(self, machine: Machine, step: Fact, span: Span) -> None:
        """Something is cut in blocks of `step` members."""

    def cut(self, machine: Machine, name: str, length: Fact, span: Span) -> None:
        """No more than the first `length` members of something called `name` are kept."""

    def interesting(self, text: str) -> bool:
        """Whether functions of a module with this text are worth looking into when somebody else calls them."""
        return False

    def fields(self, name: str) -> Iterable[str]:
        """The known fields of a configuration class of a library."""
        return ()

    def provides(self, root: str, name: str) -> bool:
        """Whether `from root import *` is known to bring a name."""
        return False


class Frame:
    """A call in progress."""

    def __init__(
        self, scope: Scope, text: Text, module: Module, function: Function | None = None, site: Span | None = None
    ) -> None:
        self.scope = scope
        self.text = text
        self.module = module
        self.function = function
        self.site = site
        """Where it was called."""
        self.returns: list[Fact] = []
        self.yields: list[Fact] = []
        self.partial = False
        """It may have returned before the current statement."""


class Loop:
    """A loop in progress: what it iterates and how often, where that is known."""

    def __init__(self, span: Span, iterable: Fact | None, count: Fact | None, once: bool = False) -> None:
        self.span = span
        self.iterable = iterable
        self.count = count
        self.records: list[Any] = []
        """What happened inside, for the framework models."""
        self.once = once
        """Its body is walked once for however many rounds."""
        self.born: int = Object().born
        """Objects made later than this are made anew in each round."""
        self.depth = 0
        """Undecided conditions around it."""
        self.partial = False
        """A round may have ended before the current statement (`continue` under a condition that is not decided)."""


class Machine:
    """Walks one script. `library` models the frameworks, `files` reads sibling modules, `launch` is the command line."""

    def __init__(self, semantics: Semantics, library: Library, files: Files | None = None, launch: Launch | None = None) -> None:
        self.semantics = semantics
        self.library = library
        self.files = files
        self.launch = launch
        self.fuel = FUEL
        self.frames: list[Frame] = []
        self.contexts: list[Fact] = []
        self.conditions: list[Fact] = []
        """The undecided conditions that the current statement is under."""
        self.loops: list[Loop] = []
        self.observing = 0
        """Above zero while looking into a function that somebody else calls: nothing trains there."""
        self.shadow = 0
        """Above zero while walking an arm that runs only when an overridable default is overridden."""
        self.modules: dict[str, Module] = {}
        self.module_paths: dict[tuple[str, int, str], str | None] = {}
        self.imported = 0
        """Characters of imported modules so far."""
        self.read_paths: list[str] = []
        self.environ: dict[str, Fact] = {}
        self.flags: dict[str, Fact] = {}
        """What libraries hold once in a process: absl's flags by name, `wandb.config`."""
        self.root = ""
        """Path of the entry script."""
        self._journals: list[dict[tuple[int, Any], tuple[Object, Any, Any]]] = []

    # --- walking --------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Fact:
        """The abstract value of an expression."""
        return self.semantics.evaluate(self, node)

    def execute(self, body: list[ast.stmt]) -> Flow:
        """Walk a block."""
        return self.semantics.execute(self, body)

    def call(self, callee: Fact, call: Call) -> Fact:
        """Call a value."""
        return self.semantics.call(self, callee, call)

    def follow(self, function: Function, call: Call) -> Fact:
        """Call a function of the script."""
        return self.semantics.follow(self, function, call)

    # --- places -------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        """The innermost call."""
        return self.frames[-1]

    def span(self, node: ast.AST) -> Span:
        """Where a node of the current module stands."""
        return self.frame.text.span(node)

    def call_sites(self) -> tuple[Span, ...]:
        """The places of the calls in progress, outermost first."""
        return tuple(frame.site for frame in self.frames if frame.site is not None)

    def conditions_of_round(self) -> tuple[Fact, ...]:
        """The undecided conditions inside the innermost loop; none where a round may have ended early, too."""
        loop = self.loops[-1]
        return () if loop.partial else tuple(self.conditions[loop.depth :])

    def left_early(self) -> bool:
        """Whether the current statement may be skipped by a `return` or `continue` before it."""
        return any(frame.partial for frame in self.frames) or any(loop.partial for loop in self.loops)

    def spend(self, amount: int = 1) -> None:
        """Use up fuel; raises `OutOfFuel`."""
        self.fuel -= amount
        if self.fuel < 0:
            raise OutOfFuel

    # --- state --------------------------------------------------------------------------------------------------

    def write(self, target: Object, key: Any, value: Any) -> None:
        """Set a slot so that it can be undone."""
        if isinstance(target, Attributes):
            target = target.owner
            if key is REST:
                self.obscure(target, str(value))
                return
            self.write(target, f".set:{key}", True)
        if self._journals:
            journal = self._journals[-1]
            place = (id(target), key)
            if place not in journal:
                journal[place] = (target, key, target.slots.get(key, ABSENT))
        target.slots[key] = value

    def obscure(self, instance: Instance, reason: str) -> None:
        """An attribute whose name is not known was set: any that the object has may be it."""
        classes = reversed(list(instance.cls.lineage())) if isinstance(instance.cls, Class) else ()
        held = {key: fact for cls in classes if isinstance(cls, Class) for key, fact in cls.scope.slots.items()} | instance.slots
        for key, fact in held.items():
            if isinstance(fact, Fact) and isinstance(key, str) and key[:1] not in "._" and not isinstance(fact.value, Function):
                self.write(instance, key, Fact(Opaque("set", (fact,)), Status.UNKNOWN, fact.origin, reason=reason))
        if isinstance(instance.cls, Symbol):
            self.write(instance, REST, reason)

    def erase(self, target: Object, key: Any) -> None:
        """Remove a slot so that it can be undone."""
        target = target.owner if isinstance(target, Attributes) else target
        if key in target.slots:
            self.write(target, key, None)
            del target.slots[key]

    @contextmanager
    def undone(self) -> Iterator[dict[tuple[int, Any], tuple[Object, Any, Any]]]:
        """Run a block and undo what it wrote; the yielded dict then maps each touched slot to what was written."""
        journal: dict[tuple[int, Any], tuple[Object, Any, Any]] = {}
        finals: dict[tuple[int, Any], tuple[Object, Any, Any]] = {}
        self._journals.append(journal)
        depth = len(self.frames), len(self.contexts), len(self.conditions), len(self.loops)
        try:
            yield finals
        finally:
            self._journals.pop()
            del self.frames[depth[0] :], self.contexts[depth[1] :], self.conditions[depth[2] :], self.loops[depth[3] :]
            for place, (target, key, old) in journal.items():
                finals[place] = (target, key, target.slots.get(key, ABSENT))
                if old is ABSENT:
                    target.slots.pop(key, None)
                else:
                    target.slots[key] = old

    # --- branches -----------------------------------------------------------------------------------------------

    def branch(self, condition: Fact, then: Callable[[], Flow], otherwise: Callable[[], Flow]) -> Flow:
        """Walk what a condition selects: one arm when it is decided, both when it is not."""
        if condition.known and isinstance(condition.value, bool):
            taken, other = (then, otherwise) if condition.value else (otherwise, then)
            if condition.status is Status.FIXED:
                return taken()
            return self._overridable(taken, other)
        decided_by, flipped = decider(condition)
        arms = [otherwise, then] if flipped else [then, otherwise]
        self.conditions.append(condition)
        try:
            return self.fork(arms, decided_by)
        finally:
            self.conditions.pop()

    def fork(self, arms: list[Callable[[], Flow]], decided_by: str = "") -> Flow:
        """Walk several arms from the same state and join what they did; raises `Halted` when all of them stop."""
        outcomes: list[tuple[Flow, dict[tuple[int, Any], tuple[Object, Any, Any]], list[Fact]]] = []
        returns = self.frame.returns
        for arm in arms:
            before = len(returns)
            try:
                with self.undone() as finals:
                    flow = arm()
            except Halted:
                del returns[before:]
                continue
            outcomes.append((flow, finals, returns[before:]))
            del returns[before:]
        if not outcomes:
            raise Halted
        if len(outcomes) < len(arms):
            decided_by = ""
        returned = [value for _, _, values in outcomes for value in values]
        if decided_by and len(outcomes) == 2 and all(len(values) == 1 for _, _, values in outcomes):
            returned = [merge(returned, decided_by)]
        returns.extend(returned)
        self._join(outcomes, decided_by)
        flows = {flow for flow, _, _ in outcomes}
        if len(flows) > 1 and Flow.NEXT in flows:
            left = self.frame if Flow.RETURN in flows or not self.loops else self.loops[-1]
            left.partial = True
        for flow in (Flow.NEXT, Flow.CONTINUE, Flow.BREAK):
            if flow in flows:
                return flow
        return Flow.RETURN

    def _join(
        self,
        outcomes: list[tuple[Flow, dict[tuple[int, Any], tuple[Object, Any, Any]], list[Fact]]],
        decided_by: str,
    ) -> None:
        goes_on = any(flow is not Flow.RETURN for flow, _, _ in outcomes)
        touched: dict[tuple[int, Any], tuple[Object, Any]] = {}
        for _, finals, _ in outcomes:
            touched.update({place: (target, key) for place, (target, key, _) in finals.items()})
        for place, (target, key) in touched.items():
            local = isinstance(target, Scope)
            values = [
                finals[place][2] if place in finals else target.slots.get(key, ABSENT)
                for flow, finals, _ in outcomes
                if not (local and goes_on and flow is Flow.RETURN and target is self.frame.scope)
            ]
            if len({len(v) for v in values if type(v) is tuple}) > 1:
                self.write(target, REST, "it is longer on some paths than on others")
            joined = join_slots(values, local, decided_by)
            if joined is ABSENT:
                self.erase(target, key)
            else:
                self.write(target, key, joined)

    def _overridable(self, taken: Callable[[], Flow], other: Callable[[], Flow]) -> Flow:
        """The condition holds by a default: walk that arm, look at the other one, and weaken what differs."""
        returns = self.frame.returns
        before = len(returns)
        alternative: dict[tuple[int, Any], tuple[Object, Any, Any]] = {}
        stopped = False
        self.shadow += 1
        try:
            with self.undone() as alternative:
                other()
        except Halted:
            stopped = True
        finally:
            self.shadow -= 1
        del returns[before:]
        age = Object().born
        try:
            with self.undone() as finals:
                flow = taken()
        except Halted:
            if stopped:
                raise
            return other()
        for place, (target, key, final) in finals.items():
            older = target.born < age
            differs = place in alternative or (older and (key in target.slots or not isinstance(target, Scope)))
            value = weaken(final) if differs and not stopped and isinstance(final, Fact) else final
            self.erase(target, key) if value is ABSENT else self.write(target, key, value)
        if not stopped:
            for place, (target, key, _) in alternative.items():
                if place not in finals and isinstance(target.slots.get(key), Fact):
                    self.write(target, key, weaken(target.slots[key]))
            returns[before:] = [weaken(value) for value in returns[before:]]
        return flow

    # --- modules ------------------------------------------------------------------------------------------------

    def run_text(self, text: Text, name: str, scope: Scope | None = None) -> Module:
        """Walk a module's body in a new scope (or in a given one, for `exec`)."""
        scope = scope if scope is not None else Scope()
        module = Module(name, text.path, scope)
        self.modules.setdefault(text.path, module)
        if text.path not in self.read_paths:
            self.read_paths.append(text.path)
        self.write(scope, "__name__", fixed(name))
        self.write(scope, "__file__", fixed(text.path))
        self.frames.append(Frame(scope, text, module))
        try:
            self.execute(text.tree.body)
        finally:
            self.frames.pop()
        return module


def join_slots(values: list[Any], local: bool, decided_by: str) -> Any:
    """The value of a slot after arms that left it with these values. An unbound variable takes the bound one's value."""
    present = [v for v in values if v is not ABSENT]
    if not present:
        return ABSENT
    if all(isinstance(v, Fact) for v in present):
        if local and len(present) < len(values):
            return merge(present)
        return merge([fixed(ABSENT) if v is ABSENT else v for v in values], decided_by)
    if all(type(v) is tuple for v in present):
        if len({len(v) for v in present}) == 1:
            return tuple(merge([v[i] for v in present], decided_by) for i in range(len(present[0])))
        return min(present, key=len)
    if all(isinstance(v, str) for v in present):
        return next((v for v in present if v), "")
    return present[-1]
