from itertools import chain

from datasets import load_dataset
from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM, Trainer, TrainingArguments, default_data_collator

block_size = 1024
tokenizer = AutoTokenizer.from_pretrained("EleutherAI/gpt-neox-20b")
config = GPTNeoXConfig(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=len(tokenizer))
model = GPTNeoXForCausalLM(config)
raw = load_dataset("wikitext", "wikitext-2-raw-v1")


def tokenize_function(examples):
    return tokenizer(examples["text"])


def group_texts(examples):
    concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
    total = len(concatenated[list(examples.keys())[0]])
    total = (total // block_size) * block_size
    result = {k: [t[i : i + block_size] for i in range(0, total, block_size)] for k, t in concatenated.items()}
    result["labels"] = result["input_ids"].copy()
    return result


lm = raw.map(tokenize_function, batched=True, remove_columns=["text"]).map(group_texts, batched=True)
args = TrainingArguments("neox", per_device_train_batch_size=6, per_gpu_eval_batch_size=None, do_train=True, do_eval=True,
                         eval_strategy="epoch", fp16=False, learning_rate=6e-4)
trainer = Trainer(model=model, args=args, train_dataset=lm["train"], eval_dataset=lm["validation"], data_collator=default_data_collator)
if args.do_train:
    result = trainer.train()
if args.do_eval:
    trainer.evaluate()
