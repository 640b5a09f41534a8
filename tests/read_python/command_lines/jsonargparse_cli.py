from jsonargparse import CLI

RESULT = {}


def main(model: str = "gpt2", bs: int = 8, bf16: bool = False, betas: tuple[float, float] = (0.9, 0.95), length: int | None = None):
    RESULT.update(model=model, bs=bs, bf16=bf16, betas=list(betas), length=length)


if __name__ == "__main__":
    CLI(main)
