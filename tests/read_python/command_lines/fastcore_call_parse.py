from fastcore.script import call_parse

RESULT = {}


@call_parse
def main(
    bs: int = 4,  # batch size
    model: str = "gpt2",  # model
    length: int = 512,
):
    RESULT.update(bs=bs, model=model, length=length)
