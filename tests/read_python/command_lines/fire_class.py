import fire

RESULT = {}


class Tool:
    def __init__(self, model="gpt2", bf16=False):
        self.model = model
        self.bf16 = bf16

    def train(self, bs: int = 8, accumulate=1, *, gc=False, **extra):
        RESULT.update(what="train", model=self.model, bf16=self.bf16, bs=bs, accumulate=accumulate, gc=gc, **extra)

    def export_model(self, path, quantize=False):
        RESULT.update(what="export", path=path, quantize=quantize, model=self.model)


if __name__ == "__main__":
    fire.Fire(Tool)
