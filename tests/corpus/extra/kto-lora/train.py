from datasets import load_dataset
from peft import LoraConfig, TaskType
from trl import KTOConfig, KTOTrainer

NAME = "Qwen/Qwen2.5-7B-Instruct"


def get_args(**extra):
    base = dict(output_dir="kto", per_device_train_batch_size=4, gradient_accumulation_steps=2)
    base.update(extra)
    return KTOConfig(**base)


if __name__ == "__main__":
    peft = LoraConfig(r=64, lora_alpha=16, target_modules="all-linear", task_type=TaskType.CAUSAL_LM, use_rslora=True)
    trainer = KTOTrainer(
        NAME,
        args=get_args(max_length=1536, bf16=True, gradient_checkpointing=False),
        train_dataset=load_dataset("trl-lib/kto-mix-14k", split="train"),
        peft_config=peft,
    )
    trainer.train()
    trainer.save_model()
