"""The parameters of the s3 output, and everything about them that `check` can find out."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import (
    Configurable,
    boolean,
    declared_params,
    hash_,
    integer,
    number,
    raw_section,
    section,
    string,
    time,
)
from headrace.conf.values import as_string
from headrace.pipeline.plugin import Output
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.inject import Inject
from headrace.plugins.out_s3.compress import STORES, Compress, level_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems

INSTALL_HINT: Final = "install it with: pip install 'headrace[s3]'"
MAX_HEX_RANDOM: Final = 16
DEFAULT_FORMAT: Final = "%{path}%{time_slice}_%{index}.%{file_extension}"
UNCHECKED_FORMAT: Final = "%{path}/%{time_slice}_%{hms_slice}.%{file_extension}"
"""The keys with check_object false, where nothing is configured."""
REMOVED: Final = ("%{uuid}", "%{uuid:random}", "%{uuid:hostname}", "%{uuid:timestamp}")
UNIQUE: Final = ("${chunk_id}", "%{uuid_flush}", "%{hex_random}")
_INDEX: Final = re.compile(r"%(0\d*)?[dxX]")


def aiobotocore_installed() -> bool:
    """Whether the client is there; imports nothing."""
    return importlib.util.find_spec("aiobotocore") is not None


class Sts(Configurable):
    """Where STS is."""

    sts_region = string(default=None, doc="Region of STS; default: s3_region")
    sts_http_proxy = string(default=None, secret=True, doc="Proxy to STS")
    sts_endpoint_url = string(default=None, doc="URL of STS")
    policy = string(default=None, doc="An IAM policy, JSON")
    duration_seconds = integer(default=None, doc="Seconds for which credentials are good")


class AssumeRole(Sts):
    """Credentials of a role."""

    role_arn = string(default=None, secret=True, doc="The role (required)")
    role_session_name = string(default=None, doc="Name of the session (required)")
    external_id = string(default=None, secret=True, doc="Id that the role's owner asks for")

    def validate(self, problems: Problems) -> None:
        """Check what is required, once the section is there."""
        for name in ("role_arn", "role_session_name"):
            if getattr(self, name) is None:
                problems.error(f'parameter "{name}" is required', self.place)


class WebIdentity(AssumeRole):
    """Credentials for a token of somebody else."""

    web_identity_token_file = string(default=None, secret=True, doc="File with the token (required)")

    def validate(self, problems: Problems) -> None:
        """Check what is required, once the section is there."""
        super().validate(problems)
        if self.web_identity_token_file is None:
            problems.error('parameter "web_identity_token_file" is required', self.place)


class InstanceProfile(Configurable):
    """Credentials of the machine, from its metadata service."""

    retries = integer(default=None, doc="How often it is asked again")
    ip_address = string(default=None, doc="Its address (169.254.169.254)")
    port = integer(default=None, doc="Its port (80)")
    http_open_timeout = number(default=None, doc="Seconds to wait for it")
    http_read_timeout = number(default=None, doc="Seconds to wait for it; the longer one counts")


class SharedCredentials(Configurable):
    """Credentials of a file."""

    path = string(default=None, doc="The file (~/.aws/credentials)")
    profile_name = string(default=None, doc="The profile in it (default)")


class LifecycleRule(Configurable):
    """One rule for the life of objects."""

    id_ = string(key="id", doc="Its id")
    prefix = string(default="", doc="Objects whose keys begin so")
    expiration_days = integer(doc="Days until they go")


class S3Parameters(Output):
    """The parameters, and what is made of them before anything runs."""

    buffer_defaults: ClassVar[Mapping[str, str]] = {"timekey": "86400"}
    default_chunk_keys = ("time",)
    old_style: ClassVar[Mapping[str, str]] = {"format": "out_file", "buffer": "time", "inject": ""}
    nested_types: ClassVar[Mapping[str, str]] = {"format": "out_file"}

    s3_bucket = string(doc="The bucket")
    s3_region = string(default=None, doc="The region; default: AWS_REGION, else us-east-1")
    s3_endpoint = string(default=None, doc="URL of a service that is like S3")
    path = string(default="", placeholders=True, doc="What %{path} stands for")
    s3_object_key_format = string(default=DEFAULT_FORMAT, placeholders=True, doc="Form of the keys")
    time_slice_format = string(default=None, doc="Form of %{time_slice}; default: as fine as timekey")
    index_format = string(default="%d", doc="Form of %{index}, as sprintf has it: %d, %x, %X, with 0 and a width")
    hex_random_length = integer(default=4, doc="Digits of %{hex_random}")
    store_as = string(default="gzip", doc=f"Form of the objects: {', '.join(STORES)}")
    compress = section(Compress, name="compress", doc="How store_as zstd compresses")
    command_parameter = string(
        default=None, doc="For gzip_command and lzma2: the level, -0 to -9, among the flags of the program"
    )
    overwrite = boolean(default=False, doc="Without %{index} in the key: write over an object that is there")
    check_object = boolean(default=True, doc="Look whether a key is taken")
    check_bucket = boolean(default=True, doc="Look whether the bucket is there")
    auto_create_bucket = boolean(default=True, doc="Make a bucket that is not there")
    check_apikey_on_start = boolean(default=True, doc="Try the credentials after the start")
    bucket_lifecycle_rules = section(
        LifecycleRule, name="bucket_lifecycle_rule", multi=True, doc="Rules to give the bucket"
    )

    acl = string(default=None, doc="Canned permissions of objects")
    grant_full_control = string(default=None, doc="Who may do everything with them")
    grant_read = string(default=None, doc="Who may read them")
    grant_read_acp = string(default=None, doc="Who may read their permissions")
    grant_write_acp = string(default=None, doc="Who may change their permissions")
    storage_class = string(default="STANDARD", doc="Class of storage")
    reduced_redundancy = boolean(default=False, deprecated="use storage_class", doc="Class REDUCED_REDUNDANCY")
    use_server_side_encryption = string(default=None, doc="Encryption by the server: AES256, aws:kms")
    ssekms_key_id = string(default=None, secret=True, doc="Key of KMS")
    sse_customer_algorithm = string(default=None, doc="Encryption with a key of one's own: AES256")
    sse_customer_key = string(default=None, secret=True, doc="That key")
    sse_customer_key_md5 = string(default=None, secret=True, doc="Its MD5; default: worked out")
    checksum_algorithm = string(default=None, doc="Checksum of objects: CRC32, CRC32C, SHA1, SHA256")
    compute_checksums = boolean(default=None, doc="false: a checksum only where S3 asks for one")
    tagging = string(default=None, doc="Tags of objects: a=b&c=d")
    s3_metadata = hash_(
        default=None, value_type=as_string, placeholders=True, doc="Metadata of objects; %{index} is possible"
    )

    aws_key_id = string(default=None, secret=True, doc="Access key; absent: AWS's own chain of credentials")
    aws_sec_key = string(default=None, secret=True, doc="Its secret")
    aws_profile = string(default=None, doc="Profile of AWS's configuration files")
    aws_credential_process = string(default=None, doc="Program that prints credentials")
    aws_iam_retries = integer(default=None, deprecated="use <instance_profile_credentials>", doc="Its retries")
    assume_role_credentials = section(AssumeRole, name="assume_role_credentials", doc="Credentials of a role")
    web_identity_credentials = section(WebIdentity, name="web_identity_credentials", doc="Credentials for a token")
    instance_profile_credentials = section(
        InstanceProfile, name="instance_profile_credentials", doc="Credentials of the machine"
    )
    shared_credentials = section(SharedCredentials, name="shared_credentials", doc="Credentials of a file")

    proxy_uri = string(default=None, secret=True, doc="Proxy to S3")
    ssl_verify_peer = boolean(default=True, doc="Verify the server's certificate")
    ssl_ca_bundle = string(default=None, doc="PEM file of the CAs to trust")
    ssl_ca_directory = string(default=None, obsoleted="give one file by ssl_ca_bundle", doc="Refused")
    use_bundled_cert = boolean(default=None, deprecated="it has no effect: see ssl_ca_bundle", doc="No effect")
    enable_transfer_acceleration = boolean(default=False, doc="S3 Transfer Acceleration")
    enable_dual_stack = boolean(default=False, doc="Endpoints for IPv6 too")
    force_path_style = boolean(default=False, doc="The bucket in the path of URLs, and not in the host")
    signature_version = string(default=None, doc="s3 or v4")
    warn_for_delay = time(default=None, doc="Seconds after its time slice from which an object is logged as late")
    format_section = raw_section(name="format", doc="The formatter; out_file by default")
    inject = section(Inject, name="inject", doc="Values to add to each record")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        drop_blanks(self, *(item.name for item in declared_params(type(self)) if item.default is None))
        if not aiobotocore_installed():
            problems.error("the s3 output needs aiobotocore, which is not installed", self.place, hint=INSTALL_HINT)
        if self.store_as not in STORES:
            hint = "one of " + ", ".join(STORES)
            problems.error(f'store_as "{self.store_as}" is not supported', self.place_of("store_as"), hint=hint)
        if self.command_parameter is not None and level_of(self.command_parameter) is None:
            problems.error(
                'parameter "command_parameter" must be a level, -0 to -9', self.place_of("command_parameter")
            )
        if not 1 <= self.hex_random_length <= MAX_HEX_RANDOM:
            problems.error(
                f"hex_random_length parameter must be less than or equal to {MAX_HEX_RANDOM}",
                self.place_of("hex_random_length"),
            )
        if not _INDEX.fullmatch(self.index_format):
            problems.error(
                "index_format must be %d, %x or %X, with 0 and a width or without", self.place_of("index_format")
            )
        self._validate_keys(problems)
        self._validate_connection(problems)
        if (self.aws_key_id is None) != (self.aws_sec_key is None):
            problems.error("aws_key_id and aws_sec_key are set together", self.place)

    def _validate_keys(self, problems: Problems) -> None:
        place = self.place_of("s3_object_key_format")
        given = self.directive is not None and any(self.directive.children("s3_object_key_format"))
        for name in REMOVED:
            if name in self.s3_object_key_format:
                problems.error(f"{name} placeholder in s3_object_key_format is removed", place)
        if not self.check_object:
            if given:
                problems.warn("with check_object false, objects of the same key are overwritten", place)
            else:
                self.__dict__["s3_object_key_format"] = UNCHECKED_FORMAT
        elif not self.overwrite and not any(name in self.s3_object_key_format for name in ("%{index}", *UNIQUE)):
            hint = "put %{index}, ${chunk_id}, %{uuid_flush} or %{hex_random} into it, or set overwrite true"
            problems.warn("s3_object_key_format may give two chunks the same key", place, hint=hint)

    def _validate_connection(self, problems: Problems) -> None:
        endpoint = self.s3_endpoint
        if endpoint is not None:
            amazon = endpoint.endswith("amazonaws.com") and not endpoint.endswith("vpce.amazonaws.com")
            if amazon and "fips" not in endpoint and "gov" not in endpoint:
                problems.error(
                    "s3_endpoint is for services that are like S3", self.place_of("s3_endpoint"), hint="use s3_region"
                )
            elif "://" not in endpoint:
                problems.error("s3_endpoint is no URL", self.place_of("s3_endpoint"), hint=f"https://{endpoint}")
        if self.signature_version not in {None, "s3", "v4", "s3v4"}:
            problems.error('signature_version is "s3" or "v4"', self.place_of("signature_version"))
        for name in ("ssl_ca_bundle",):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                problems.error(f'{name} "{path}" does not exist', self.place_of(name))

    @property
    def region(self) -> str:
        """The region."""
        return self.s3_region or os.environ.get("AWS_REGION") or "us-east-1"

    def put_options(self) -> dict[str, Any]:
        """What each PUT says about its object."""
        named = {
            "StorageClass": "REDUCED_REDUNDANCY" if self.reduced_redundancy else self.storage_class,
            "ServerSideEncryption": self.use_server_side_encryption,
            "SSEKMSKeyId": self.ssekms_key_id,
            "SSECustomerAlgorithm": self.sse_customer_algorithm,
            "SSECustomerKey": self.sse_customer_key,
            "SSECustomerKeyMD5": self.sse_customer_key_md5,
            "ACL": self.acl,
            "GrantFullControl": self.grant_full_control,
            "GrantRead": self.grant_read,
            "GrantReadACP": self.grant_read_acp,
            "GrantWriteACP": self.grant_write_acp,
            "ChecksumAlgorithm": self.checksum_algorithm,
            "Tagging": self.tagging,
        }
        return {name: value for name, value in named.items() if value is not None}
