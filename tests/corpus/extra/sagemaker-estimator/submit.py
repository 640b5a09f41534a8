import sagemaker
from sagemaker.huggingface import HuggingFace
role = sagemaker.get_execution_role()
hyperparameters = {"model_id": "tiiuae/falcon-7b", "per_device_train_batch_size": 2, "bf16": True}
est = HuggingFace(entry_point="train.py", source_dir="./scripts", instance_type="ml.p4d.24xlarge", instance_count=2, role=role,
    transformers_version="4.36", pytorch_version="2.1", py_version="py310", hyperparameters=hyperparameters, distribution={"torch_distributed": {"enabled": True}})
est.fit({"train": "s3://x"})
