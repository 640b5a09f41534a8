#!/bin/bash
# usage: run.sh small|big
size=$1
case "$size" in
  small) MODEL=Qwen/Qwen3-0.6B; BS=16 ;;
  big) MODEL=Qwen/Qwen3-8B; BS=2 ;;
  *) echo "usage"; exit 1 ;;
esac

launch() {
  local gpus="$1"; shift
  torchrun --nproc_per_node "$gpus" train.py "$@"
}

launch 4 --model "$MODEL" --bs "$BS" --seq 1024
