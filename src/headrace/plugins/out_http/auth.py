"""Authorization of a request: Basic (RFC 7617), or AWS Signature Version 4.

Signing needs botocore (`pip install 'headrace[aws]'`), imported when the output starts. Credentials
come from a program of their own (aws_credentials.py), because finding them blocks; they are asked
for again some minutes before they expire.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error, Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plugins.out_http.endpoint import Endpoint

INSTALL_HINT: Final = "install it with: pip install 'headrace[aws]'"

_REFRESH_BEFORE: Final = 300.0
"""Seconds before their expiry at which credentials are replaced."""
_FIND_TIMEOUT: Final = 60.0


def basic(username: str, password: str) -> str:
    """The value of Authorization for a user and password."""
    pair = f"{username}:{password}".encode("utf-8", "surrogateescape")
    return "Basic " + base64.b64encode(pair).decode()


def botocore_installed() -> bool:
    """Whether signing is possible here; imports nothing."""
    return importlib.util.find_spec("botocore") is not None


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """access_key, secret_key, token as botocore's signer wants them; expires: seconds since 1970, None never."""

    access_key: str
    secret_key: str
    token: str | None = None
    expires: float | None = None


async def find_credentials(region: str, role_arn: str | None) -> AwsCredentials:
    """Run aws_credentials.py. Raises Error, retryable: the metadata service or STS may answer later."""
    program = [sys.executable, "-m", "headrace.plugins.out_http.aws_credentials", region]
    child = await asyncio.create_subprocess_exec(
        *program, *([role_arn] if role_arn else []), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, told = await asyncio.wait_for(child.communicate(), _FIND_TIMEOUT)
    except TimeoutError as error:
        child.kill()
        await child.wait()
        raise Error("no AWS credentials within 60 seconds", kind="aws_credentials", retryable=True) from error
    if child.returncode != 0:
        reason = told.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Error(f"AWS credentials: {reason}", kind="aws_credentials", side=Side.US, retryable=True)
    found: dict[str, Any] = json.loads(out)
    return AwsCredentials(**found)


class AwsSigner:
    """Signs requests for one service and region.

    now: wall clock in seconds since 1970. find: where credentials come from (tests give their own).
    """

    def __init__(
        self,
        service: str,
        region: str,
        role_arn: str | None,
        now: Callable[[], float],
        find: Callable[[str, str | None], Any] = find_credentials,
    ) -> None:
        self._service = service
        self._region = region
        self._role_arn = role_arn
        self._now = now
        self._find = find
        self._credentials: AwsCredentials | None = None
        self._finding: asyncio.Lock = asyncio.Lock()

    async def _fresh(self) -> AwsCredentials:
        async with self._finding:
            held = self._credentials
            if held is None or (held.expires is not None and held.expires - _REFRESH_BEFORE < self._now()):
                held = self._credentials = await self._find(self._region, self._role_arn)
            return held

    async def headers(self, method: str, endpoint: Endpoint, content_type: str, body: bytes) -> list[tuple[str, str]]:
        """The header fields to add to this request. Raises Error, retryable, without credentials."""
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - an optional dependency
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.compat import HTTPHeaders  # noqa: PLC0415

        credentials = await self._fresh()
        request = AWSRequest(method=method, url=str(endpoint), data=body)
        signer = SigV4Auth(credentials, self._service, self._region)
        headers = HTTPHeaders()
        headers["Content-Type"] = content_type
        headers["Host"] = endpoint.authority.decode()
        request.headers = headers
        # Named before signing, so that it is among the signed fields, which OpenSearch ingestion wants.
        headers["X-Amz-Content-SHA256"] = signer.payload(request)
        signer.add_auth(request)
        return [(name, value) for name, value in request.headers.items() if name not in {"Content-Type", "Host"}]
