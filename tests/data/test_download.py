"""Downloads from a local server that simulates failures."""

import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from varrnn.data import download
from varrnn.data.download import FetchError
from varrnn.data.files import sha256_of

CONTENT = b"first file\n" * 5000
EXPECTED = sha256_of(CONTENT)
HTML = b"\n<!DOCTYPE html><html>please log in</html>"


class Server(ThreadingHTTPServer):
    """Serves `content`; `plan` says what goes wrong at each request, in order."""

    content = CONTENT
    plan: tuple[str, ...] = ()
    etag: str | None = '"v1"'

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}/a.txt"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        turn = len(server.ranges) - 1
        fault = server.plan[turn] if turn < len(server.plan) else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        start = int(asked[6:-1]) if asked and fault != "ignore range" else 0
        start += fault == "wrong offset"
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        if fault != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault in ("cut", "no length") else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", (0.0, 0.0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def get(server):
    return download.download(server.url, EXPECTED)


def test_a_complete_response(server):
    assert get(server) == CONTENT and server.ranges == [None]


def test_an_interrupted_response_is_resumed_at_its_end(server):
    server.plan = ("cut", "cut")
    assert get(server) == CONTENT
    assert server.ranges == [None, "bytes=27500-", "bytes=41250-"]


@pytest.mark.parametrize("fault", ["ignore range", "wrong offset"])
def test_a_server_that_cannot_resume_gets_a_new_request(server, fault):
    server.plan = ("cut", fault)
    assert get(server) == CONTENT


def test_without_a_version_nothing_is_resumed(server):
    server.plan, server.etag = ("cut",), None
    assert get(server) == CONTENT and server.ranges == [None, None]


def test_a_server_error_is_retried_a_missing_file_is_not(server):
    server.plan = ("503",)
    assert get(server) == CONTENT
    server.plan, server.ranges = ("404",), []
    with pytest.raises(FetchError, match=r"a\.txt: the server answers 404"):
        get(server)
    assert len(server.ranges) == 1


def test_a_response_that_is_always_interrupted_is_rejected_with_both_checksums(server):
    server.plan, server.etag = ("cut",) * 3, None
    with pytest.raises(FetchError) as error:
        get(server)
    for part in ("a.txt", "after 27,500 of 55,000", sha256_of(CONTENT[:27_500]), EXPECTED):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("fault", "content", "message"),
    [
        ("", HTML, "HTML page"),
        ("", b"first fill\n" * 5000, "not the data"),
        ("no length", CONTENT, "27,500 bytes"),
    ],
)
def test_a_wrong_response_is_rejected_with_its_name_and_both_checksums(server, fault, content, message):
    server.plan, server.content = (fault,), content
    with pytest.raises(FetchError, match=message) as error:
        get(server)
    came = content[: len(content) // 2] if fault else content
    assert "a.txt" in str(error.value) and sha256_of(came) in str(error.value) and EXPECTED in str(error.value)


def test_an_endless_response_is_aborted(server, monkeypatch):
    monkeypatch.setattr(download, "LIMIT", 2**15)
    with pytest.raises(FetchError, match="larger than"):
        get(server)
