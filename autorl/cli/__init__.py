"""The command line `autorl`: a thin layer over the library.

Modules here import typer and nothing heavy; each command imports what it needs when it runs.
"""

from autorl.cli.app import app, main

__all__ = ["app", "main"]
