from fastcore.script import bool_arg, call_parse, store_true

RESULT = {}


@call_parse
def main(
    model: str = "gpt2",  # the model
    bs: int = 8,  # samples
    gc: store_true = False,  # recompute
    bf16: bool_arg = True,
    plain: bool = False,
):
    RESULT.update(model=model, bs=bs, gc=gc, bf16=bf16, plain=plain)
