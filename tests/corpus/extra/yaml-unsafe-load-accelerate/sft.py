from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_kbit_device_map, get_peft_config, get_quantization_config


def main(script_args, training_args, model_args):
    kwargs = dict(revision=model_args.model_revision, attn_implementation=model_args.attn_implementation, dtype=model_args.dtype,
                  device_map=get_kbit_device_map() if get_quantization_config(model_args) is not None else None,
                  quantization_config=get_quantization_config(model_args))
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, **kwargs)
    trainer = SFTTrainer(model=model, args=training_args, train_dataset=load_dataset(script_args.dataset_name)["train"],
                         peft_config=get_peft_config(model_args))
    trainer.train()


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
