import modal

app = modal.App("ft")
image = modal.Image.debian_slim().pip_install("torch", "transformers")


@app.function(gpu="H100", image=image, timeout=3600)
def train(batch_size: int = 4, model_id: str = "Qwen/Qwen2.5-1.5B"):
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.bfloat16)
    args = TrainingArguments("/tmp/o", per_device_train_batch_size=batch_size, bf16=True)
    Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()


@app.local_entrypoint()
def main():
    train.remote(batch_size=6)
