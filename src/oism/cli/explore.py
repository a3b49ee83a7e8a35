"""``oism explore``: the explorer in a browser."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import STANDARD, Command, check_file, options

MOST_PORT = 65_535


@options
class Explore(Command):
    """Draw points in a browser, and watch the density, its score and its samples follow.

    One page that works offline: it is served at an address of this machine and opened in the
    browser, until Ctrl-C. With -o it is written to a file, which a browser opens too.

    Examples:
      oism explore
      oism explore --no-browser --port 8000
      oism explore -o explorer.html
    """

    needs_torch = False

    output: Annotated[str | None, arg(aliases=["-o"], metavar="FILE")] = None
    """Write the page to this file instead; - is standard output."""
    no_browser: bool = False
    """Print the address, and open no browser."""
    port: Annotated[int, arg(metavar="N")] = 0
    """The port of the address; 0 is any free one."""

    def run(self) -> None:
        """Write the page, or serve it."""
        if not 0 <= self.port <= MOST_PORT:
            raise UsageError(f"--port: expected 0 to {MOST_PORT}, got {self.port}")
        if self.output is None:
            self._serve()
        else:
            _write(self.output)

    def _serve(self) -> None:
        import webbrowser
        from threading import Thread

        from oism.explorer import local_server

        with local_server(self.port) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}/"
            print(f"the explorer is at {address}; Ctrl-C ends it", flush=True)
            if not self.no_browser:
                webbrowser.open(address)
            # The main thread only waits: Ctrl-C while it accepts a request could be lost.
            serving = Thread(target=server.serve_forever, daemon=True)
            serving.start()
            try:
                serving.join()
            except KeyboardInterrupt:
                server.shutdown()


def _write(output: str) -> None:
    from oism._core.atomic import replacing
    from oism.explorer import page

    check_file(output, binary=False)
    if output == STANDARD:
        print(page(), end="")
        return
    with replacing(output) as draft:
        draft.write_text(page(), encoding="utf-8")
    print(f"page written to {output}")
