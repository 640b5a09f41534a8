import sys
from dataclasses import dataclass
from typing import Optional

from transformers import HfArgumentParser


@dataclass
class Settings:
    model: str = "gpt2"
    bs: int = 1
    length: Optional[int] = None
    bf16: bool = False


parser = HfArgumentParser(Settings)
if len(sys.argv) == 2 and sys.argv[1].endswith(".yaml"):
    (s,) = parser.parse_yaml_file(sys.argv[1])
elif len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    (s,) = parser.parse_json_file(sys.argv[1])
else:
    (s,) = parser.parse_args_into_dataclasses()
RESULT = {"model": s.model, "bs": s.bs, "length": s.length, "bf16": s.bf16}
