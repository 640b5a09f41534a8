#!/bin/bash
HOSTS=worker-1,worker-2
export MASTER_PORT=$((29500 + RANDOM % 100))
deepspeed --num_nodes 2 --num_gpus 4 train.py --deepspeed_config conf/zero3.json --ckpt
