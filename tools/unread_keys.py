"""Lists the keys of configuration files that memlint's dialects never look at, the frequent ones first.

    python tools/unread_keys.py DIR ... [--dialect axolotl] [--all]

Keys whose topic has nothing to do with GPU memory (logging, saving, data sets, learning rates, tokens, services) are left out
unless `--all`. What remains is either harmless or not yet understood: the work that a framework's new keys make.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memlint import defaults
from memlint.dialects import by_name, recognise
from memlint.dialects.context import Context, first_document
from memlint.facts import Fact
from memlint.project import Project
from memlint.read.document import Document, MappingNode, flatten
from memlint.read.interpolate import interpolated
from memlint.source import ReadError, read

HARMLESS = re.compile(
    r"(?:^|[._])(?:output|out|save\w*|log\w*|report|run|wandb|swanlab|mlflow|comet|tensorboard|otel\w*|hub|push|seed|data\w*|train_files?"
    r"|train_on\w*|train_dataset|val_files?|test_datasets|learning|lr\w*|loraplus|warmup\w*|weight_decay|wd|adam\w*|betas?|eps\w*|momentum"
    r"|max_steps|num_\w*epochs?|epochs?|max_tokens|min_lr|cosine\w*|scheduler\w*|resume\w*|token\w*|special\w*|chat\w*|template|prompt\w*"
    r"|system|plot\w*|overwrite\w*|report_to|trust\w*|revision|license|strict|shuffle\w*|split\w*|ddp_timeout|num_workers|workers|preprocess\w*"
    r"|description|name|tags|metric\w*|profil\w*|device|debug|auto_resume\w*|hf_\w*|_target_|project_name|experiment_name|metadata"
    r"|main_process\w*|machine_rank|rdzv\w*|same_network|tpu\w*|downcast_bf16|main_training_function|steps_per_print|wall_clock\w*"
    r"|gradient_clipping|max_grad_norm|clip\w*|loss_scale\w*|hysteresis|initial_scale\w*|min_loss_scale|temperature|top_[pk]|remove_unused\w*"
    r"|early_stopping\w*|eval_steps|evals_per_epoch|load_best\w*|watchdog\w*|interval|max_samples|max_new_tokens|generat\w*|state_dict_type"
    r"|compute_environment|do_train|gpu_ids|enable_cpu_affinity|exp_manager|callbacks|accelerator|inference|server|web_\w+|port|init_method\w*"
    r"|\w*_init_method\w*|use_scaled_init_method|norm_type|normalization|position_embedding_type|rotary\w*|benchmark|monitor|checkpoint\w*"
    r"|quantizer|loss_fn|\w*kd_ratio|kl_coeff|\w*_coef|\w*_coeff|gamma|lam|alpha|\w*_alpha|curriculum\w*|streaming\w*|compression_training|autotuning"
    r"|prescale_gradients|bias_correction|cuda_aware|freeze_step|max_coeff|min_coeff|factor_\w+|steps|train_iters|eval_iters|max_iters"
    r"|initial_validation|final_validation|sample_backend|model_author|use_rslora|use_loftq|rl_coef|advantage_estimator|vllm_server\w*|num_threads"
    r"|fault_tolerance|comm|amp_init_scale|native_amp\w*|seq_len_interpolation\w*|speech_encoder|modality_adapter|audio_\w+|collate_fn|username"
    r"|password|share|s3_checkpointing|dist_ckpt\w*|kl_ctrl|pf_ppo|use_pf_ppo|multi_turn|hybrid_engine|nccl_timeout|freeze_step|model_class"
    r"|processor_type|with_tracking|keep_last_n\w*|local_step_scaler)"
    r"(?:$|[._])",
    re.IGNORECASE,
)


class Recorded(dict[str, Fact]):
    """Native facts that remember which of them were asked for."""

    def __init__(self, facts: dict[str, Fact]) -> None:
        super().__init__(facts)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Fact:
        self.asked.add(key)
        return super().__getitem__(key)


def known_arguments() -> frozenset[str]:
    """The arguments of the HF dataclasses that have recorded defaults: the shared dialects read those from a copy."""
    data = json.loads((Path(defaults.__file__).parent / "transformers.json").read_text())["classes"]
    trl = json.loads((Path(defaults.__file__).parent / "trl.json").read_text())["classes"]
    return frozenset(field for fields in (*data.values(), *trl.values()) for field in fields)


def unread(document: Document, dialect_name: str, root: Path) -> Iterator[str]:
    """The dotted paths of a document that its dialect did not ask for; of a block that is read whole, none."""
    dialect = by_name(dialect_name)
    native = flatten(document)
    native = interpolated(native) if dialect.INTERPOLATES else native
    recorded = Recorded(native)
    project = Project(root)
    facts = dialect.facts(recorded, Context(path=document.path, project=project))
    arguments = known_arguments()
    for path, fact in native.items():
        parents = [path[:index] for index, character in enumerate(path) if character == "."]
        read_whole = any(parent in recorded.asked for parent in parents)
        container = isinstance(fact.value, (dict, list)) or bool(re.search(r"\.\d+(?:\.|$)", path))
        known = path in recorded.asked or path.partition(".")[0] in arguments
        if known or read_whole or container or (fact.known and fact.value is None):
            continue
        # a dialect may have read it from a copy: then the facts are others without it
        rest = {name: other for name, other in native.items() if name != path}
        if dialect.facts(rest, Context(path=document.path, project=project)) == facts:
            yield path


def documents(root: Path) -> Iterator[Document]:
    """The first document of every YAML, JSON and TOML file below a directory that has one."""
    for file in sorted(root.rglob("*")):
        if file.suffix in (".yaml", ".yml", ".json", ".toml") and file.is_file():
            try:
                document = first_document(read(str(file)))
            except ReadError:
                continue
            if document is not None and isinstance(document.root, MappingNode):
                yield document


def main() -> None:
    """Print the keys that no dialect asked for, most frequent first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--dialect")
    parser.add_argument("--all", action="store_true", help="also the keys that have nothing to do with memory")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    files: Counter[str] = Counter()
    for root in options.directories:
        for document in documents(root):
            found = recognise(document)
            if found is None or (options.dialect and options.dialect != found[0].NAME):
                continue
            name = found[0].NAME
            files[name] += 1
            counts.setdefault(name, Counter()).update(
                path for path in unread(document, name, root) if options.all or not HARMLESS.search(path)
            )
    for name in sorted(counts):
        print(f"{name}: {files[name]} files")
        for path, count in counts[name].most_common():
            print(f"  {count:4d}  {path}")


if __name__ == "__main__":
    main()
