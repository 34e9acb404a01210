"""Whose credentials requests are signed with, and how they are renewed, by aiobotocore's own machinery.

Exactly one source is used where one is configured; without any, AWS's chain (environment, profiles, container,
machine).
"""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import Error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.plugins.out_s3.parameters import S3Parameters, Sts

    Renew = Callable[[], Awaitable[dict[str, Any]]]
    """Credentials as aiobotocore wants them: access_key, secret_key, token, expiry_time (ISO 8601 or None)."""

PROCESS_TIMEOUT = 60.0


def make_session(owner: S3Parameters) -> Any:
    """A session of aiobotocore with the configured credentials."""
    from aiobotocore.session import AioSession  # noqa: PLC0415 - an optional dependency

    session = AioSession(profile=owner.aws_profile) if owner.aws_profile is not None else AioSession()
    if owner.assume_role_credentials.present:
        _renewed_by(session, _assumed(session, owner))
    elif owner.aws_key_id is not None and owner.aws_sec_key is not None:
        session.set_credentials(owner.aws_key_id, owner.aws_sec_key)
    elif owner.aws_profile is not None:
        pass
    elif owner.aws_credential_process is not None:
        _renewed_by(session, _printed(owner.aws_credential_process))
    elif owner.web_identity_credentials.present:
        _renewed_by(session, _for_token(session, owner))
    elif owner.instance_profile_credentials.present or owner.aws_iam_retries is not None:
        _of_machine(session, owner)
    elif owner.shared_credentials.present:
        _of_file(session, owner)
    return session


def _only(session: Any, *methods: str) -> None:
    """Leave only some providers of the chain."""
    chain = session.get_component("credential_provider")
    chain.providers = [provider for provider in chain.providers if provider.METHOD in methods]


def _of_machine(session: Any, owner: S3Parameters) -> None:
    given = owner.instance_profile_credentials
    retries = given.retries if given.retries is not None else owner.aws_iam_retries
    if retries is not None:
        session.set_config_variable("metadata_service_num_attempts", retries + 1)
    waits = [wait for wait in (given.http_open_timeout, given.http_read_timeout) if wait is not None]
    if waits:
        session.set_config_variable("metadata_service_timeout", max(waits))
    if given.ip_address is not None or given.port is not None:
        address = f"http://{given.ip_address or '169.254.169.254'}:{given.port or 80}/"
        session.set_config_variable("ec2_metadata_service_endpoint", address)
    _only(session, "container-role", "iam-role")


def _of_file(session: Any, owner: S3Parameters) -> None:
    given = owner.shared_credentials
    if given.path is not None:
        session.set_config_variable("credentials_file", given.path)
    if given.profile_name is not None:
        session.set_config_variable("profile", given.profile_name)
    _only(session, "shared-credentials-file")


def _renewed_by(session: Any, renew: Renew) -> None:
    """Let a function be the only source of credentials; it is asked again before they expire."""
    from aiobotocore.credentials import AioCredentials, AioRefreshableCredentials  # noqa: PLC0415
    from botocore.credentials import CredentialProvider  # noqa: PLC0415

    class Provider(CredentialProvider):  # type: ignore[misc] # the base is untyped
        METHOD = CANONICAL_NAME = "headrace"

        async def load(self) -> Any:
            found = await renew()
            if found["expiry_time"] is None:
                return AioCredentials(found["access_key"], found["secret_key"], found["token"], method=self.METHOD)
            return AioRefreshableCredentials.create_from_metadata(found, refresh_using=renew, method=self.METHOD)

    session.get_component("credential_provider").providers = [Provider()]


def _assumed(session: Any, owner: S3Parameters) -> Renew:
    given = owner.assume_role_credentials
    base: dict[str, Any] = {}
    if owner.aws_key_id is not None:
        base = {"aws_access_key_id": owner.aws_key_id, "aws_secret_access_key": owner.aws_sec_key}
    asking = _asking_session(session)

    async def renew() -> dict[str, Any]:
        options = {"ExternalId": given.external_id} if given.external_id is not None else {}
        async with asking.create_client("sts", **_sts(owner, given), **base) as client:
            answer = await client.assume_role(
                RoleArn=given.role_arn, RoleSessionName=given.role_session_name, **options, **_session_options(given)
            )
        return _named(answer["Credentials"])

    return renew


def _for_token(session: Any, owner: S3Parameters) -> Renew:
    given = owner.web_identity_credentials
    read = Path(given.web_identity_token_file or "").read_text
    asking = _asking_session(session)

    async def renew() -> dict[str, Any]:
        try:
            token = read(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Error(f"web_identity_token_file cannot be read: {error}", kind="token", retryable=True) from error
        unsigned = {"aws_access_key_id": "unsigned", "aws_secret_access_key": "unsigned"}  # the token is the proof
        async with asking.create_client("sts", **_sts(owner, given), **unsigned) as client:
            answer = await client.assume_role_with_web_identity(
                RoleArn=given.role_arn,
                RoleSessionName=given.role_session_name,
                WebIdentityToken=token,
                **_session_options(given),
            )
        return _named(answer["Credentials"])

    return renew


def _asking_session(session: Any) -> Any:
    """Another session, whose credentials are those of the chain: that of `session` will ask us."""
    return type(session)(profile=session.profile) if session.profile is not None else type(session)()


def _sts(owner: S3Parameters, given: Sts) -> dict[str, Any]:
    from aiobotocore.config import AioConfig  # noqa: PLC0415

    proxies = {"http": given.sts_http_proxy, "https": given.sts_http_proxy} if given.sts_http_proxy else None
    return {
        "region_name": given.sts_region or owner.region,
        "endpoint_url": given.sts_endpoint_url,
        "config": AioConfig(proxies=proxies),
    }


def _session_options(given: Sts) -> dict[str, Any]:
    options = {"Policy": given.policy, "DurationSeconds": given.duration_seconds}
    return {name: value for name, value in options.items() if value is not None}


def _named(found: dict[str, Any]) -> dict[str, Any]:
    expires = found.get("Expiration")
    return {
        "access_key": found["AccessKeyId"],
        "secret_key": found["SecretAccessKey"],
        "token": found.get("SessionToken"),
        "expiry_time": expires if expires is None or isinstance(expires, str) else expires.isoformat(),
    }


def _printed(command: str) -> Renew:
    """Credentials of a program: docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html."""

    async def renew() -> dict[str, Any]:
        child = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            out, told = await asyncio.wait_for(child.communicate(), PROCESS_TIMEOUT)
        except TimeoutError as error:
            child.kill()
            await child.wait()
            raise Error("aws_credential_process does not end", kind="credentials", retryable=True) from error
        try:
            if child.returncode:
                reason = told.decode("utf-8", "replace").strip()[:500]
                raise ValueError(f"status {child.returncode}: {reason}")
            return _named(json.loads(out))
        except (ValueError, KeyError, TypeError) as error:
            # Never what it printed: that may be a secret.
            why = (
                error if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError) else "no answer"
            )
            raise Error(f"aws_credential_process: {why}", kind="credentials", retryable=True) from error

    return renew
