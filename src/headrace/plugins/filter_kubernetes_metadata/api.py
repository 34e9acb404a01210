"""Requests to the API server, and watches, over connections of their own.

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from headrace.core.http1.events import ResponseHead
from headrace.core.http1.parse import ProtocolError, ResponseParser
from headrace.errors import ConnectionFailed, Error, Side, Timeout
from headrace.plugins.http_lane import HttpClient, with_path
from headrace.plugins.out_http.request import build_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headrace.core.tls_config import TlsConfig
    from headrace.pipeline.context import Context
    from headrace.plugins.out_http.endpoint import Endpoint

CONNECTIONS: Final = 4
"""Questions that are asked at the same time."""
IDLE: Final = 330.0
"""Seconds after which a watch without a word is begun again; the server ends one after five minutes by itself."""
MAX_LINE: Final = 16 << 20
"""Bytes of one notice of a watch."""


class ApiError(Error):
    """An answer that is no success. status: its code, 0 where there was none."""

    kind = "kubernetes"
    side = Side.SERVER
    retryable = True

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """The API server. endpoint: its URL; without a path, /api. version: such as v1."""

    def __init__(
        self,
        context: Context,
        endpoint: Endpoint,
        version: str,
        *,
        tls: TlsConfig | None,
        token_file: str | None,
        open_timeout: float,
        read_timeout: float,
    ) -> None:
        self._client = HttpClient(context, tls=tls, open_timeout=open_timeout, read_timeout=read_timeout)
        self._endpoint = endpoint
        path = endpoint.target.decode().rstrip("/")
        self._base = f"{path or '/api'}/{version}"
        self._token_file = token_file
        self._token: str | None = None
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for index in range(CONNECTIONS):
            self._free.put_nowait(index)

    def _fields(self) -> list[tuple[str, str]]:
        fields = [("Accept", "application/json")]
        if self._token_file is not None:
            if self._token is None:
                try:
                    self._token = Path(self._token_file).read_text(encoding="utf-8").strip()
                except (OSError, ValueError) as error:
                    raise ApiError(f"bearer_token_file cannot be read: {error}", 0) from error
            fields.append(("Authorization", f"Bearer {self._token}"))
        return fields

    def _unauthorized(self) -> None:
        """The token may have been renewed: it is read again."""
        self._token = None

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """One object or list. Raises ApiError (ConnectionFailed among its causes)."""
        target = with_path(self._endpoint, f"{self._base}/{path}" + (f"?{urlencode(query)}" if query else ""))
        index = await self._free.get()
        try:
            for last in (False, True):
                answer = await self._client.send(index, "GET", target, self._fields())
                if answer.status != 401 or last:
                    break
                self._unauthorized()
        except ConnectionFailed as error:
            raise ApiError(error.message, 0) from error
        finally:
            self._free.put_nowait(index)
        if answer.status != 200:
            raise ApiError(f"GET {path}: {answer.status} {answer.body[:200].decode('utf-8', 'replace')}", answer.status)
        if answer.truncated:
            raise ApiError(f"GET {path}: an answer that is too long", 0)
        return _object(answer.body, path)

    async def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """A pod, as the server's cache has it."""
        return await self.get(
            f"namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}", resourceVersion="0"
        )

    async def namespace(self, name: str) -> dict[str, Any]:
        """A namespace, as the server's cache has it."""
        return await self.get(f"namespaces/{quote(name, safe='')}", resourceVersion="0")

    async def watch(self, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        """The notices of a watch, until the server ends it. Raises ApiError."""
        target = with_path(self._endpoint, f"{self._base}/{path}?{urlencode({'watch': 'true', **query})}")
        try:
            stream = await self._client.dial(target)
        except ConnectionFailed as error:
            raise ApiError(error.message, 0) from error
        try:
            stream.write(build_head("GET", target, self._fields(), keep_alive=False) + b"0\r\n\r\n")
            parser = ResponseParser(b"GET")
            held = b""
            ended = False
            while not ended:
                data = await stream.read(timeout=IDLE)
                for event in parser.feed(data) if data else parser.feed_eof():
                    if isinstance(event, ResponseHead):
                        self._check(event, path)
                    elif isinstance(event, bytes):
                        held += event
                ended = not data or parser.done
                *lines, held = held.split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _object(line, path)
                if len(held) > MAX_LINE:
                    raise ApiError(f"watch {path}: a notice of more than {MAX_LINE} bytes", 0)
        except Timeout:
            return
        except (ConnectionFailed, ProtocolError) as error:
            raise ApiError(f"watch {path}: {error.message}", 0) from error
        finally:
            stream.abort()

    def _check(self, head: ResponseHead, path: str) -> None:
        if head.status == 401:
            self._unauthorized()
        if head.status != 200:
            raise ApiError(f"watch {path}: {head.status}", head.status)

    def close(self) -> None:
        """Close the connections; watches close their own."""
        self._client.close()

    def stats(self) -> dict[str, int]:
        """Counters of connections."""
        return self._client.stats()


def _object(text: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ApiError(f"GET {path}: the answer is no JSON", 0) from error
    if not isinstance(found, dict):
        raise ApiError(f"GET {path}: the answer is no object", 0)
    return found
