import click

RESULT = {}


@click.command()
@click.option("--name", "-n", default="gpt2", show_default=True)
@click.option("--bs", "batch_size", type=int, default=2)
@click.option("--lr", default=1e-4)
@click.option("--optim", type=click.Choice(["adamw_torch", "adafactor"]), default="adafactor")
@click.option("--fp16/--no-fp16", default=True)
@click.option("--gc", is_flag=True)
@click.option("--target", multiple=True, default=["q"])
@click.argument("out", default="o")
def cli(name, batch_size, lr, optim, fp16, gc, target, out):
    RESULT.update(name=name, bs=batch_size, lr=lr, optim=optim, fp16=fp16, gc=gc, target=target, out=out)


if __name__ == "__main__":
    cli()
