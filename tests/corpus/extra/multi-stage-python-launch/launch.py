import subprocess
import sys

cmd = ["torchrun", "--nproc_per_node", "4", "train.py", "--bs", "2"]
subprocess.run(cmd, check=True)
