"""The hosts of a cluster: which is asked next, how requests to it are authorized, and which version it has.

A lane asks the hosts in turn, each over a connection of its own. One whose connection fails is left out for
`resurrect_after` while others answer, and the request goes to the next one within the same flush.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from headrace.errors import ConnectionFailed, Error, Side
from headrace.plugins.http_lane import with_path
from headrace.plugins.out_http.auth import basic
from headrace.plugins.out_http.endpoint import Endpoint, parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from headrace.core.http1.client import Response
    from headrace.plugins.elastic.parameters import ElasticParameters
    from headrace.plugins.http_lane import HttpClient

    Sign = Callable[[str, Endpoint, str, bytes], Awaitable[list[tuple[str, str]]]]

_PLAIN: Final = re.compile(r"[^:/@\s]+(?::\d+)?")
_QUOTED: Final = re.compile(r"%\{(.*?)\}")
KEPT: Final = 64
"""Lists of hosts that are remembered, where placeholders make several."""


class Host:
    """One host. prefix: path before each request's. authorization: its own credentials, else those of all.

    dead_until: by the clock, in seconds.
    """

    def __init__(self, endpoint: Endpoint, prefix: str, authorization: str | None) -> None:
        self.endpoint = endpoint
        self.prefix = prefix
        self.authorization = authorization
        self.dead_until = 0.0

    def __str__(self) -> str:
        return f"{self.endpoint.scheme}://{self.endpoint.authority.decode()}{self.prefix}"


def unquoted(text: str | None) -> str | None:
    """A user or password that may stand as %{...}."""
    match = _QUOTED.fullmatch(text) if text is not None else None
    return match[1] if match else text


def parse_hosts(text: str, owner: ElasticParameters) -> list[Host]:
    """The hosts of `host` or `hosts`: names, host:port, IPv6 addresses, URLs. Raises Error, not retryable."""
    user, password = unquoted(owner.user), unquoted(owner.password)
    shared = basic(user, password or "") if user is not None else None
    prefix = _prefix(owner.path)
    found: list[Host] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        if _PLAIN.fullmatch(item):
            host, _, port = item.partition(":")
            found.append(Host(parse(f"{owner.scheme}://{host}:{port or owner.port}/"), prefix, shared))
        elif "://" not in item and item.count(":") > 1:
            found.append(Host(parse(f"{owner.scheme}://[{item.strip('[]')}]:{owner.port}/"), prefix, shared))
        else:
            found.append(_of_url(item, prefix, shared))
    if not found:
        raise Error("no host is given", kind="hosts", side=Side.US)
    return found


def _of_url(item: str, prefix: str, shared: str | None) -> Host:
    own: str | None = None
    head, at, tail = item.rpartition("@")
    if at:
        scheme, _, userinfo = head.partition("://")
        match = re.fullmatch(r"(%\{.*?\}|[^:]*)(?::(.*))?", userinfo, re.DOTALL)
        name, word = (match[1], match[2] or "") if match else (userinfo, "")
        own = basic(_plain(name), _plain(word))
        item = f"{scheme}://{tail}"
    try:
        parts = urlsplit(item)
        port = parts.port
    except ValueError as error:
        raise Error(f"a host is no URL: {tail or item!r}", kind="hosts", side=Side.US) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Error(f"a host is no http or https URL: {tail or item!r}", kind="hosts", side=Side.US)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = f"{parts.scheme}://{host}:{port}" if port is not None else f"{parts.scheme}://{host}"
    return Host(parse(where + "/"), _prefix(parts.path) or prefix, own or shared)


def _plain(text: str) -> str:
    match = _QUOTED.fullmatch(text)
    return match[1] if match else unquote(text, errors="surrogateescape")


def _prefix(path: str | None) -> str:
    path = (path or "").strip("/")
    return f"/{path}" if path else ""


def cloud_host(cloud_id: str) -> str:
    """The URL in an Elastic Cloud id: NAME:base64(domain$elasticsearch$kibana). Raises ValueError."""
    try:
        parts = base64.b64decode(cloud_id.rpartition(":")[2] + "==").decode().split("$")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("it is no cloud id") from error
    if len(parts) < 2 or not all(parts[:2]):
        raise ValueError("it is no cloud id")
    domain, _, port = parts[0].partition(":")
    name, _, own_port = parts[1].partition(":")
    return f"https://{name}.{domain}:{own_port or port or 443}"


class Cluster:
    """The hosts of one output, and requests to them.

    fields: header fields of every request. sign: makes further ones of (method, endpoint, content type, body).
    fallback: ask the first host that answers, and not each in turn.
    """

    def __init__(
        self,
        client: HttpClient,
        hosts: list[Host],
        *,
        now: Callable[[], float],
        resurrect_after: float,
        fields: list[tuple[str, str]],
        sign: Sign | None = None,
        fallback: bool = False,
        log: logging.Logger | None = None,
        name: Hashable = "",
    ) -> None:
        self.hosts = hosts
        self.version: int | None = None
        """The server's major version, once it was asked for."""
        self._client = client
        self._now = now
        self._resurrect_after = resurrect_after
        self._fields = fields
        self._sign = sign
        self._fallback = fallback
        self._log = log
        self._name = name
        self._turns = 0

    async def request(
        self, owner: Hashable, method: str, path: str, content_type: str = "", body: bytes = b"", *, gzip: bool = False
    ) -> Response:
        """Send one request to the host whose turn it is. Raises ConnectionFailed when none can be reached."""
        last: ConnectionFailed | None = None
        for index in self._order():
            host = self.hosts[index]
            try:
                answer = await self._send((owner, self._name, index), host, method, path, content_type, body, gzip)
            except ConnectionFailed as error:
                host.dead_until = self._now() + self._resurrect_after
                last = error
                if getattr(error, "reply_started", False) or error.kind == "timeout":
                    break  # it may have acted on the request: the next flush decides
                continue
            host.dead_until = 0.0
            return answer
        assert last is not None
        raise last

    def _order(self) -> list[int]:
        """The hosts to try: those that answer first, in turn; then those that did not."""
        count = len(self.hosts)
        start = 0 if self._fallback else self._turns % count
        self._turns += 1
        now = self._now()
        turn = [(start + step) % count for step in range(count)]
        alive = [index for index in turn if self.hosts[index].dead_until <= now]
        return alive + [index for index in turn if index not in alive]

    async def _send(
        self, owner: Hashable, host: Host, method: str, path: str, content_type: str, body: bytes, gzip: bool
    ) -> Response:
        endpoint = with_path(host.endpoint, host.prefix + path)
        fields = list(self._fields)
        if self._sign is not None:
            content_type = content_type or "application/json"  # it is among what is signed
        if content_type:
            fields.append(("Content-Type", content_type))
        if gzip:
            fields.append(("Content-Encoding", "gzip"))
        if self._sign is not None:
            fields += await self._sign(method, endpoint, content_type, body)
        elif host.authorization is not None and not any(name.lower() == "authorization" for name, _ in fields):
            fields.append(("Authorization", host.authorization))
        answer = await self._client.send(owner, method, endpoint, fields, body)
        if self._log is not None:
            self._log.info("%s %s%s: %d", method, host, path, answer.status)
        return answer

    def forget(self, owner: Hashable) -> None:
        """Close an owner's connections."""
        for index in range(len(self.hosts)):
            self._client.forget((owner, self._name, index))

    async def major_version(self, owner: Hashable, default: int) -> int:
        """Ask for the server's version, once. Raises Error, retryable, when the answer is none."""
        if self.version is None:
            answer = await self.request(owner, "GET", "/")
            if not 200 <= answer.status < 300:
                raise refused(answer, "the server's version")
            self.version = _major(answer.body, default)
        return self.version


def _major(body: bytes, default: int) -> int:
    try:
        info: Any = json.loads(body)
        return int(str(info["version"]["number"]).partition(".")[0])
    except (ValueError, KeyError, TypeError):
        return default


def refused(answer: Response, what: str) -> Error:
    """The error of an answer that is no success: as the originals, it is tried again."""
    told = answer.body[:1024].decode("utf-8", "replace").strip()
    text = f"could not get {what}: {answer.status} {answer.reason.decode('utf-8', 'replace')} {told}".rstrip()
    return Error(text, kind=f"http_{answer.status}", side=Side.SERVER, retryable=True)
