from dataclasses import dataclass

from trl import TrlParser


@dataclass
class Script:
    data: str = "imdb"
    split: str = "train"


@dataclass
class Train:
    bs: int = 4
    length: int = 256
    packing: bool = False


script, train = TrlParser((Script, Train)).parse_args_and_config()
RESULT = dict(data=script.data, split=script.split, bs=train.bs, length=train.length, packing=train.packing)
