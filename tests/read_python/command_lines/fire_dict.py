import fire

RESULT = {}


def sft(model, bs=8, *more, lr=1e-4):
    RESULT.update(what="sft", model=model, bs=bs, more=list(more), lr=lr)


def dpo(model="gpt2", beta=0.1):
    RESULT.update(what="dpo", model=model, beta=beta)


if __name__ == "__main__":
    fire.Fire({"sft": sft, "dpo": dpo})
