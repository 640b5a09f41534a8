#!/usr/bin/env bash
set -x
SCRIPT_DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"
ROOT=$(realpath "$SCRIPT_DIR/..")
export PYTHONPATH="$ROOT:$PYTHONPATH"
if [[ -z "${NUM_GPUS}" ]]; then NUM_GPUS=2; fi
LR=2e-5; EPOCHS=3
readonly BATCH=4
torchrun --nproc_per_node="${NUM_GPUS}" "${ROOT}/src/train.py" --bs=${BATCH} --lr $LR --epochs $EPOCHS \
         ${EXTRA:+--model $EXTRA} --seq $(( 1 << 11 ))
