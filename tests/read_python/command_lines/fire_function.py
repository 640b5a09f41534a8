import fire

RESULT = {}


def train(base_model: str = "gpt2", micro_batch_size: int = 4, targets=("q_proj", "v_proj"), gc=False, lr=3e-4, note=None):
    RESULT.update(model=base_model, bs=micro_batch_size, targets=targets, gc=gc, lr=lr, note=note, accum=128 // micro_batch_size)


if __name__ == "__main__":
    fire.Fire(train)
