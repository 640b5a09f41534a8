"""An abstract interpreter of Python: values are facts, nothing is executed.

`script.run_script` is the door. From the bottom up: `values` (what a value can be), `sequences`, `operators`, `grammar`
(text to tree), `machine` (state, branches, budget), `environment`, `files`, `imports`, `access` (attributes and items),
`conditions`; then the builtins (`objects`, `system`, `containers`, `builtins`, `methods`), `displays`, `expressions`,
`construction`, `calls`, `statements`; and on top of them the command lines: `options`, `annotations`, `documents`,
`argument_parsers`, `hydra`, `commands`.
"""
