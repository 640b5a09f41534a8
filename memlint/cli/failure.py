"""What ends a command early: one line for a person, exit code 2."""


class Failure(Exception):
    """A wrong option, a missing path, a broken configuration. The message is all that the user sees."""
