sbatch --gres=gpu:4 job.sh Qwen/Qwen2.5-0.5B 4
