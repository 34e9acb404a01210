"""A program of its own: finds AWS credentials and prints them as one line of JSON.

botocore looks for credentials with blocking calls (the instance's metadata service, STS), which may
not happen on a worker's loop, so the output starts this program each time it needs fresh ones:

    python -m headrace.plugins.out_http.aws_credentials REGION [ROLE_ARN]

The result has access_key, secret_key, token (or null) and expires (seconds since 1970, or null).
Exit status 1 with a sentence on stderr where there are none.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

SESSION_NAME = "headrace"


def find(region: str, role_arn: str | None) -> dict[str, Any]:
    """Ask botocore's provider chain, then STS where a role is to be assumed. Raises botocore's errors."""
    from botocore.session import Session  # noqa: PLC0415 - only this program needs it

    session = Session()
    if role_arn:
        client = session.create_client("sts", region_name=region)
        found = client.assume_role(RoleArn=role_arn, RoleSessionName=SESSION_NAME)["Credentials"]
        return {
            "access_key": found["AccessKeyId"],
            "secret_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expires": found["Expiration"].timestamp(),
        }
    credentials = session.get_credentials()
    if credentials is None:
        raise LookupError("no AWS credentials found")
    frozen = credentials.get_frozen_credentials()
    # botocore keeps the expiry of credentials that rotate in a private field only.
    expiry = getattr(credentials, "_expiry_time", None)
    return {
        "access_key": frozen.access_key,
        "secret_key": frozen.secret_key,
        "token": frozen.token,
        "expires": expiry.timestamp() if isinstance(expiry, datetime.datetime) else None,
    }


def main() -> int:
    """Entry point of the program."""
    try:
        found = find(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    except Exception as error:  # noqa: BLE001 - whatever botocore raises is told to the parent in one line
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
