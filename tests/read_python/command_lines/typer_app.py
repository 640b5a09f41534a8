from typing import Annotated, Optional

import typer

RESULT = {}
app = typer.Typer()


@app.command()
def main(
    model: str = typer.Argument("gpt2"),
    bs: int = typer.Option(4, "--bs", "-b"),
    length: Annotated[int, typer.Option("--max-length", "-l")] = 512,
    gc: bool = False,
    dropout: float = 0.1,
    dtype: Optional[str] = None,
):
    RESULT.update(model=model, bs=bs, length=length, gc=gc, dropout=dropout, dtype=dtype)


if __name__ == "__main__":
    app()
