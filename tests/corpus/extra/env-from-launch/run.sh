#!/bin/sh
set -a
MODEL_NAME=Qwen/Qwen2.5-7B
. ./vars.env
set +a
export ACCUM=4
WANDB_MODE=offline SEQ=1024 torchrun --nproc-per-node=gpu train.py
