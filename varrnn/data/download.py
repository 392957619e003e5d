"""One HTTP download into memory, with retries and resumption; content that is not the data is rejected."""

from __future__ import annotations

import http.client
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import nullcontext
from typing import Any

from varrnn.data.files import sha256_of

TIMEOUT = 20.0  # seconds without a byte
BACKOFF = (1.0, 3.0, 6.0)  # seconds between attempts
LIMIT = 200 * 2**20  # the largest archive has 35 MB
CHUNK = 2**16
NO_RETRY = (400, 401, 403, 404, 405, 410, 451)  # status codes for which a retry is useless


class FetchError(Exception):
    """A source that cannot be used; the message says why. The next source may still work."""


def download(url: str, expected: str | None = None) -> bytes:
    """The content of `url`, in memory: an aborted download leaves no file."""
    body = Response(url)
    for pause in (*BACKOFF, None):
        try:
            body.receive()
            break
        except urllib.error.HTTPError as error:
            reason = f"the server answers {error.code} {error.reason}"
            final = error.code in NO_RETRY
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
            cause = getattr(error, "reason", None) or error
            reason = str(cause) or type(error).__name__
            final = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME
        if final or pause is None:
            received = f"; {format_checksums(body.content, expected)}" if body.content else ""
            raise FetchError(f"{name_of(url)}: {reason}{received}")
        time.sleep(pause)
    verify_content(name_of(url), bytes(body.content), expected)
    return bytes(body.content)


def verify_content(name: str, content: bytes, expected: str | None) -> None:
    """Compare with the known SHA-256; an HTML page is rejected even without a known hash."""
    checksums = format_checksums(content, expected)
    if content[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise FetchError(f"{name}: an HTML page instead of the data (a login or a proxy?); {checksums}")
    if expected is not None and sha256_of(content) != expected:
        raise FetchError(f"{name}: {len(content):,} bytes that are not the data; {checksums}")


def format_checksums(content: bytes | bytearray, expected: str | None) -> str:
    """The found and the expected SHA-256, for messages."""
    return f"SHA-256 {sha256_of(bytes(content))}" + (f", expected {expected}" if expected else "")


def name_of(url: str) -> str:
    """The file's name at the end of a URL."""
    return url.rsplit("/", 1)[-1]


class Response:
    """The received part of one response, and the ETag or date needed to request the rest of the same version."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.content = bytearray()
        self.version: str | None = None  # ETag or date of the interrupted response

    def receive(self) -> None:
        """Request the missing part; an interrupted response raises ConnectionError and keeps the received part."""
        request = urllib.request.Request(self.url, headers={"User-Agent": "varrnn"} | self._range())
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            self._begin(answer)
            length = answer.headers.get("Content-Length")
            total = len(self.content) + int(length) if length else None
            with _bar(self.url, total, len(self.content)) as bar:
                while chunk := answer.read(CHUNK):
                    self.content += chunk
                    if bar is not None:
                        bar.update(len(chunk))
                    if len(self.content) > LIMIT:
                        raise FetchError(f"the response is larger than {LIMIT // 2**20} MB")
        if total is not None and len(self.content) != total:
            raise ConnectionError(f"the response ended after {len(self.content):,} of {total:,} bytes")

    def _range(self) -> dict[str, str]:
        if not (self.content and self.version):
            return {}
        return {"Range": f"bytes={len(self.content)}-", "If-Range": self.version}

    def _begin(self, answer: Any) -> None:
        """Append only if the server sends the rest from the current offset; otherwise start again."""
        here = f"bytes {len(self.content)}-"
        if answer.status == 206 and not answer.headers.get("Content-Range", "").startswith(here):
            self.content.clear()
            self.version = None
            raise ConnectionError("the server resumed at another offset than requested")
        if answer.status != 206:
            self.content.clear()
        tag = answer.headers.get("ETag", "")
        self.version = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")


def _bar(url: str, total: int | None, start: int) -> Any:
    """A progress bar, if stderr is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return nullcontext()
    hidden = not sys.stderr.isatty()
    return tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=name_of(url), leave=False, disable=hidden)
