# Ray Train + Trainer
import ray, torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
import ray.train.huggingface.transformers as rt
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
def train_func(config):
    model = AutoModelForSequenceClassification.from_pretrained(config["model"], num_labels=5)
    args = TrainingArguments(output_dir="o", per_device_train_batch_size=config["bs"], eval_strategy="epoch")
    trainer = Trainer(model=model, args=args, train_dataset=t, eval_dataset=e)
    trainer.add_callback(rt.RayTrainReportCallback()); trainer = rt.prepare_trainer(trainer)
    trainer.train()
if __name__ == "__main__":
    TorchTrainer(train_func, train_loop_config={"model": "bert-base-cased", "bs": 12}, scaling_config=ScalingConfig(num_workers=4, use_gpu=True)).fit()
