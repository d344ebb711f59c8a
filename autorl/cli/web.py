"""The web page of `autorl watch --web`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from autorl.cli.options import say, say_line
from autorl.core.types import InputError
from autorl.report.reading import check_folder
from autorl.report.web.server import TOKEN_CHARACTERS, StudyServer, is_loopback
from autorl.report.web.site import StudySite

TOKEN = "AUTORL_WEB_TOKEN"  # environment variable: a command line is seen by everybody


def show_on_the_web(folders: list[Path], host: str, port: int, interval: float) -> None:
    """Serve a page of studies until a signal comes."""
    for folder in folders:
        check_folder(folder)
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
    finally:
        server.server_close()
