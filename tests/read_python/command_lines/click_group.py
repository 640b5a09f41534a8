import click

RESULT = {}


@click.group()
def cli():
    pass


@cli.command()
@click.option("--bs", default=4)
def train(bs):
    RESULT.update(command="train", bs=bs)


@cli.command("eval-all")
@click.option("--bs", default=64)
def evaluate(bs):
    RESULT.update(command="eval", bs=bs)


if __name__ == "__main__":
    cli()
