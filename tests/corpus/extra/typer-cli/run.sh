set -euo pipefail
python app.py finetune --batch-size 6 --no-checkpointing google/gemma-2-2b
