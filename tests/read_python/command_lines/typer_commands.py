from enum import Enum
from typing import List, Optional

import typer
from typing_extensions import Annotated

RESULT = {}
app = typer.Typer()
state = {"verbose": False}


class Precision(str, Enum):
    bf16 = "bf16"
    fp32 = "fp32"


@app.callback()
def main(verbose: bool = False):
    state["verbose"] = verbose


@app.command()
def train(
    model: Annotated[str, typer.Argument(help="x")],
    batch_size: Annotated[int, typer.Option("--bs", "-b")] = 8,
    accumulate: int = typer.Option(2, "--ga"),
    precision: Precision = Precision.fp32,
    gc: bool = True,
    target: Optional[List[str]] = None,
):
    RESULT.update(model=model, bs=batch_size, accumulate=accumulate, bf16=precision == Precision.bf16, gc=gc, target=target,
                  verbose=state["verbose"])  # fmt: skip


@app.command("eval")
def evaluate(split: str = "test"):
    RESULT.update(split=split)


if __name__ == "__main__":
    app()
