from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments


def freeze_lower(model, keep):
    for i, layer in enumerate(model.bert.encoder.layer):
        if i >= keep:
            continue
        for p in layer.parameters():
            p.requires_grad_(False)


model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=3)
model.base_model.embeddings.requires_grad_(False)
freeze_lower(model, 8)
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=16), train_dataset=train_set).train()
