"""Serves the live page by HTTP.

It answers GET, and only to whom it should.

A page of somebody else that is open in the same browser can send requests here too. It cannot read
the answers: there is no CORS, and a name of its own that leads here (DNS rebinding) is refused by
the header Host. Any other client that can reach the port needs the token, where there is one.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
import sys
from functools import partial
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from autorl.core.types import InputError
from autorl.report.web.site import HTML, Answer, StudySite, text_answer

TOKEN_CHARACTERS = 16
"""The least characters of a token."""
_EVERYWHERE = ("", "0.0.0.0", "::")
_PATH = re.compile(r"(/[A-Za-z0-9_.-]*)+")
_MOST_FIELDS = 10
_HEADERS = {
    # Scripts and styles of this server alone, no address outside, no frame around it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Kept, but asked for each time: an answer of 304 costs little.
    "Cache-Control": "no-cache, private",
}


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach a server at `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class StudyServer(ThreadingHTTPServer):
    """Serves a site until it is closed.

    Args:
        site: what is served.
        host: address or name to listen at.
        port: 0 takes a free one.
        token: that requests must bring; empty: none, which is for loopback alone.

    Raises:
        InputError: it cannot listen there, or has no token where others can reach it.
    """

    daemon_threads = True

    def __init__(self, site: StudySite, host: str, port: int, token: str = "") -> None:
        if not token and not is_loopback(host):
            raise InputError("a token is needed if other machines can reach the page")
        self.site = site
        self.host = host
        self.token = token
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot listen at {host} port {port} ({reason})", key="--host, --port"
            ) from error

    def server_bind(self) -> None:
        """Take the port.

        The base looks up a name here, which may take long.
        """
        TCPServer.server_bind(self)
        self.server_name = self.host
        self.server_port = self.server_address[1]

    def url(self) -> str:
        """Return the address of the page, token included."""
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        host = f"[{host}]" if ":" in host else host
        query = f"?{urlencode({'token': self.token})}" if self.token else ""
        return f"http://{host}:{self.server_port}/{query}"

    def allows(self, host: str) -> bool:
        """Say whether a browser that calls this server `host` may be answered.

        A name leads where its owner says, so only names of this machine are taken. Any address is,
        where other machines may ask: it has no owner. The port may differ, of a tunnel.
        """
        try:
            parts = urlsplit(f"//{host}")
        except ValueError:
            return False
        name = parts.hostname or ""
        if parts.netloc != host or "@" in host:
            return False
        if is_loopback(name) or name in (self.host.lower(), socket.gethostname().lower()):
            return True
        if is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless it is that a browser has gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server_version = "autorl"
    sys_version = ""
    timeout: ClassVar[float] = 60.0  # seconds that a connection may be idle
    server: StudyServer

    def do_GET(self) -> None:
        """Answer a request, or refuse it."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # nobody reads the body
        self._send(self._answer())

    def _answer(self) -> Answer:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.allows(hosts[0]):
            return text_answer(403, "refused: the header Host names another machine")
        if not _is_plain(self.path):
            return text_answer(400, "refused: this path is none of the page's")
        split = urlsplit(self.path)
        try:
            query = dict(parse_qsl(split.query, strict_parsing=False, max_num_fields=_MOST_FIELDS))
        except ValueError:
            return text_answer(400, "refused: too many fields in the query")
        token = query.pop("token", "")
        if not self._is_allowed(token):
            message = "a token is needed, as in the address that `autorl watch --web` has printed"
            return text_answer(401, f"refused: {message}")
        if token and "text/html" in self.headers.get("Accept", ""):
            # Out of the address, which histories keep and people share.
            fields = f"?{urlencode(query)}" if query else ""
            return Answer(303, HTML, b"", location=split.path + fields)
        return self.server.site.answer(split.path, self.headers.get("If-None-Match", ""))

    def parse_request(self) -> bool:
        """Read a request, and refuse what is no GET."""
        if not super().parse_request():
            return False
        if self.command == "GET":
            return True
        self.close_connection = True  # a body may follow, which nobody reads
        self._send(text_answer(405, "refused: this page is read-only, and answers GET alone"))
        return False

    def _is_allowed(self, given: str) -> bool:
        token = self.server.token
        if not token:
            return True
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(self.headers.get("Cookie", ""))
        except CookieError:
            cookies.clear()
        cookie = cookies.get(self._cookie)
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        offered = [given, cookie.value if cookie else "", bearer if scheme == "Bearer" else ""]
        equals = partial(hmac.compare_digest, token.encode())
        # All are compared, so that the time says nothing.
        return any([equals(text.encode("utf-8", "surrogateescape")) for text in offered])

    @property
    def _cookie(self) -> str:
        # Cookies of one machine are shared by all of its ports.
        return f"autorl-{self.server.server_port}"

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if answer.status != 304:
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
        if answer.etag:
            self.send_header("ETag", answer.etag)
        if answer.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if answer.status == 405:
            self.send_header("Allow", "GET")
        if answer.location:
            self.send_header("Location", answer.location)
            if self.server.token:
                cookie = f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
                self.send_header("Set-Cookie", cookie)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request in a line of text."""
        self.close_connection = True
        self._send(text_answer(code, f"refused: {message or 'this is no request'}"))

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: an address may hold the token."""


def _is_plain(path: str) -> bool:
    """Say whether an address has the form of the page's own."""
    path, _, _ = path.partition("?")
    return _PATH.fullmatch(path) is not None and ".." not in path and "//" not in path
