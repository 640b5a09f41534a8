import click

RESULT = {}


@click.group()
@click.option("--debug/--no-debug", default=False)
@click.option("--root", "-r", default="/data", envvar="DATA_ROOT")
@click.pass_context
def cli(ctx, debug, root):
    ctx.ensure_object(dict)
    ctx.obj["debug"] = debug
    ctx.obj["root"] = root


@cli.command("train")
@click.argument("model", default="gpt2")
@click.option("--batch-size", "-b", "bs", type=click.INT, default=8, envvar="BS", show_default=True)
@click.option("--accumulate", type=click.IntRange(1, 64), default=4)
@click.option("--precision", type=click.Choice(["bf16", "fp32"], case_sensitive=False), default="fp32")
@click.option("--bf16", "precision", flag_value="bf16")
@click.option("--checkpoint", is_flag=True)
@click.pass_obj
def train(obj, model, bs, accumulate, precision, checkpoint):
    RESULT.update(obj, model=model, bs=1 if obj["debug"] else bs, accumulate=accumulate, checkpoint=checkpoint)


@cli.command()
@click.option("--size", type=(int, int), default=(224, 224))
@click.pass_context
def vision(ctx, size):
    RESULT.update(size=list(size), debug=ctx.obj["debug"])


if __name__ == "__main__":
    cli()
