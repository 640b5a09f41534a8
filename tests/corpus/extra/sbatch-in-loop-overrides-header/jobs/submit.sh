#!/bin/bash
for M in Qwen/Qwen2.5-0.5B; do
  sbatch --job-name=x -N 1 --gpus-per-node=4 jobs/one.slurm $M conf/z2.json
done
