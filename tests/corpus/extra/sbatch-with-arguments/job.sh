#!/bin/bash
#SBATCH --nodes=1
MODEL=$1
BS=${2:-8}
python train.py --model $MODEL --batch_size $BS
