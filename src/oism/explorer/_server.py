"""A server of the page on this machine, for browsers that do not open files."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from oism.explorer._page import page


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Send the page, or "not found" for any other path."""
        if self.path.split("?")[0] != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = page().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Print nothing."""


def local_server(port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page on 127.0.0.1; port 0 is any free one.

    >>> with local_server() as server:
    ...     server.server_address[0]
    '127.0.0.1'
    """
    return ThreadingHTTPServer(("127.0.0.1", port), _Handler)
