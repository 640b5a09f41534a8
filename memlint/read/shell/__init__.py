"""Shell text read as bash reads it, without running it: every command it would run, its words as facts with their places."""

from memlint.read.shell.evaluate import Invocation, Script, evaluate
from memlint.read.shell.printing import WrittenFile
from memlint.read.shell.syntax import ShellError
from memlint.read.shell.value import Joined, Lines, Piece, Value

__all__ = ["Invocation", "Joined", "Lines", "Piece", "Script", "ShellError", "Value", "WrittenFile", "evaluate"]
