"""Text to what is written in it: documents of YAML, JSON and TOML, Python by interpretation, shell commands, notebook cells."""
