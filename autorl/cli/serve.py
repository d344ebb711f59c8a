"""The command serve: studies as a web page, live."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import say, say_line
from autorl.report.web.server import TOKEN_CHARACTERS, StudyServer, is_loopback
from autorl.report.web.site import StudySite, check_folders
from autorl.signals import EndedBySignal
from autorl.types import InputError

TOKEN = "AUTORL_SERVE_TOKEN"  # environment variable: a command line is seen by everybody


def serve(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Folders of studies, or with studies in them, also such as begin later.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8420,
    interval: Annotated[
        float,
        typer.Option(min=0.2, max=3600.0, metavar="SECONDS", help="Between two looks of a page."),
    ] = 2.0,
) -> None:
    """Show studies as a web page, live.

    Result, incumbent over the budget, runs, workers, failures and cautions, while studies run and
    afterwards. Only this machine can open it, unless `--host` says otherwise: then the address
    printed has a token that every request needs ($AUTORL_SERVE_TOKEN, else a new one), and what is
    sent is not encrypted. Writes nothing; Ctrl-C ends it, and no study.
    """
    check_folders(folders)
    token = os.environ.get(TOKEN, "")
    if token and (len(token) < TOKEN_CHARACTERS or not token.isascii() or not token.isalnum()):
        raise InputError(f"expected at least {TOKEN_CHARACTERS} letters and digits", key=TOKEN)
    if not token and not is_loopback(host):
        token = secrets.token_hex(TOKEN_CHARACTERS)
    site = StudySite(folders, interval)
    server = StudyServer(site, host, port, token)
    try:
        count = len(site.folders())
        say_line(f"{server.url()}  (studies now: {count}; Ctrl-C ends it)")
        if not is_loopback(host):
            say("not encrypted: where others can read the network, use `ssh -L` and loopback")
        server.serve_forever()
    except EndedBySignal:
        raise
    except KeyboardInterrupt:  # Ctrl-C is how it ends
        return
    finally:
        server.server_close()
