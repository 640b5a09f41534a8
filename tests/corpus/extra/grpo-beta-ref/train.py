from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from rewards import accuracy_reward

dataset = load_dataset("trl-lib/DeepMath-103K", split="train")
args = GRPOConfig(
    output_dir="o",
    beta=0.04,
    num_generations=8,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    max_completion_length=1024,
    gradient_checkpointing=False,
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
)
trainer = GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=[accuracy_reward], args=args, train_dataset=dataset)
trainer.train()
