import hydra
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    model = AutoModelForCausalLM.from_pretrained(cfg.model.path, dtype=cfg.model.dtype, attn_implementation=cfg.model.attn)
    args = TrainingArguments(
        output_dir="o",
        per_device_train_batch_size=cfg.train.micro,
        gradient_accumulation_steps=cfg.train.total // cfg.train.micro // 2,
        gradient_checkpointing=cfg.train.gc,
        bf16=True,
        use_liger_kernel=cfg.train.get("liger", False),
        optim=cfg.optim,
    )
    Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()


if __name__ == "__main__":
    main()
