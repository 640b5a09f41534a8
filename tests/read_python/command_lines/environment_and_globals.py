import os
import sys
from ast import literal_eval

batch_size = 12
block_size = 1024
dtype = "bfloat16"
for arg in sys.argv[1:]:
    if "=" in arg:
        key, value = arg[2:].split("=")
        assert key in globals(), key
        try:
            attempt = literal_eval(value)
        except (SyntaxError, ValueError):
            attempt = value
        globals()[key] = attempt
world = int(os.environ.get("WORLD_SIZE", "1"))
RESULT = {"batch_size": batch_size, "block_size": block_size, "dtype": dtype, "accum": 64 // (batch_size * world)}
