from transformers import Trainer, TrainingArguments
args = TrainingArguments("o", per_device_train_batch_size=4)
print "starting"
Trainer(args=args).train()
