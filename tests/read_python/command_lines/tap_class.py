from typing import List, Literal, Optional

from tap import Tap


class Args(Tap):
    model: str = "gpt2"  # the model
    bs: int = 8
    bf16: bool = False
    gc: bool = True
    targets: List[str] = ["q_proj"]
    kind: Literal["full", "lora"] = "full"
    limit: Optional[int] = None

    def configure(self):
        self.add_argument("-b", "--bs")


args = Args().parse_args()
RESULT = {"model": args.model, "bs": args.bs, "bf16": args.bf16, "gc": args.gc, "targets": args.targets, "kind": args.kind,
          "limit": args.limit}  # fmt: skip
