"""Shell text read as bash reads it, without running it: every command it would run, its words as facts with their places."""

from memlint.read.shell.evaluate import Invocation, Script, WrittenFile, evaluate
from memlint.read.shell.syntax import ShellError
from memlint.read.shell.value import Lines, Piece, Value

__all__ = ["Invocation", "Lines", "Piece", "Script", "ShellError", "Value", "WrittenFile", "evaluate"]
