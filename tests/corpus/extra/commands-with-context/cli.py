import click
from common import run
@click.group(context_settings={"show_default": True})
@click.option("--debug/--no-debug", default=False)
@click.pass_context
def cli(ctx, debug):
    ctx.ensure_object(dict); ctx.obj["debug"] = debug
@cli.command("train")
@click.argument("model")
@click.option("--batch-size", "-b", "bs", type=click.INT, default=8, envvar="BS")
@click.option("--grad-accum", type=click.IntRange(1, 64), default=4)
@click.option("--bf16/--fp32", default=True)
@click.option("--ckpt", is_flag=True)
@click.pass_obj
def train_cmd(obj, model, bs, grad_accum, bf16, ckpt):
    run(model, 1 if obj["debug"] else bs, grad_accum, bf16, ckpt)
if __name__ == "__main__": cli()
