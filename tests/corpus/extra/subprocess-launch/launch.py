import argparse
import os
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=4)
args = parser.parse_args()

os.environ["TOKENIZERS_PARALLELISM"] = "false"
model = "Qwen/Qwen2.5-0.5B"
command = ["torchrun", f"--nproc_per_node={args.gpus}", "train.py", "--model_id", model]
command += ["--per_device_train_batch_size", str(2 * 3)]
subprocess.run(command, check=True)
os.system(f"python train.py --model_id {model} --bf16 true")
