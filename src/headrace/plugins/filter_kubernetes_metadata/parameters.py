"""The parameters of the kubernetes_metadata filter, and everything about them that `check` can find out."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.conf.onigmo import compile_ruby
from headrace.conf.params import array, boolean, integer, string
from headrace.errors import Error
from headrace.pipeline.plugin import Filter
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.http_lane import client_tls
from headrace.plugins.out_http.endpoint import Endpoint, parse

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.core.tls_config import TlsConfig

_POD: Final = r"(?<pod_name>[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)"
PODS: Final = rf"(var\.log\.pods)\.(?<namespace>[^_]+)_{_POD}_(?<pod_uuid>[a-z0-9-]*)\.(?<container_name>.+)\..*\.log$"
CONTAINERS: Final = (
    rf"(var\.log\.containers)\.{_POD}_(?<namespace>[^_]+)_(?<container_name>.+)-(?<docker_id>[a-z0-9]{{64}})\.log$"
)
DEFAULT_PATTERN: Final = f"({PODS}|{CONTAINERS})"
"""Tags of files below /var/log/pods and /var/log/containers."""

GROUPS: Final = ("namespace", "pod_name", "container_name", "pod_uuid", "docker_id")
_GROUP: Final = re.compile(r"\(\?<([a-zA-Z_]\w*)>")


class TagPattern:
    """A pattern with named groups; one whose alternatives name the same groups is tried as several patterns.

    Raises ValueError.
    """

    def __init__(self, text: str) -> None:
        if text == DEFAULT_PATTERN:
            self._patterns = [compile_ruby(PODS), compile_ruby(CONTAINERS)]
        else:
            self._patterns = [compile_ruby(text)]
        named = set(_GROUP.findall(text))
        missing = [name for name in GROUPS[:3] if name not in named]
        if missing:
            raise ValueError(f"it has no group (?<{missing[0]}>...)")

    def match(self, tag: str) -> dict[str, str | None] | None:
        """The groups, None when the tag is another."""
        for pattern in self._patterns:
            found = pattern.search(tag)
            if found is not None:
                groups: dict[str, str | None] = found.groupdict()
                return groups
        return None


class KubernetesParameters(Filter):
    """The parameters, and what is made of them before anything runs."""

    kubernetes_url = string(
        default=None, doc="URL of the API server; default: of KUBERNETES_SERVICE_HOST and _PORT, as in a pod"
    )
    api_version = string(default="v1", key="apiVersion", doc="Version of the API")
    ca_file = string(default=None, doc="PEM file of the CAs to trust; default: that of secret_dir")
    verify_ssl = boolean(default=True, doc="Verify the server's certificate")
    ssl_partial_chain = boolean(default=False, doc="Trust an intermediate CA in ca_file; it is trusted in any case")
    client_cert = string(default=None, doc="PEM file of the client certificate")
    client_key = string(default=None, doc="PEM file of its key")
    bearer_token_file = string(default=None, secret=True, doc="File with the token; default: that of secret_dir")
    secret_dir = string(
        default="/var/run/secrets/kubernetes.io/serviceaccount",
        secret=True,
        doc="Folder with ca.crt and token of the pod's service account",
    )
    open_timeout = integer(default=3, doc="Seconds to wait for a connection")
    read_timeout = integer(default=10, doc="Seconds to wait for an answer")

    tag_to_kubernetes_name_regexp = string(
        default=DEFAULT_PATTERN,
        doc="What of a tag is namespace, pod_name, container_name, and pod_uuid or docker_id, as named groups",
    )
    lookup_from_k8s_field = boolean(
        default=True, doc="Records with kubernetes.namespace_name, pod_name, container_name and docker.container_id"
    )
    cache_size = integer(default=1000, doc="Pods and namespaces that are remembered")
    cache_ttl = integer(default=3600, doc="Seconds for which they are; negative: for ever")
    ignore_nil = boolean(default=None, deprecated="it has no effect: what is not found is not kept", doc="No effect")
    watch = boolean(default=True, doc="Let the API server tell what changes")
    watch_retry_interval = integer(default=1, doc="Seconds before a watch is begun again")
    watch_retry_exponential_backoff_base = integer(default=2, doc="By what each wait is longer than the one before")
    watch_retry_max_times = integer(
        default=10, doc="Failures in a row after which waits grow no more, and are logged as errors"
    )
    stats_interval = integer(default=30, doc="Seconds between two lines with figures in the log; 0: none")

    annotation_match = array(default=[], doc="Patterns of the annotations to add")
    allow_orphans = boolean(default=True, doc="Records of pods nobody knows get the orphaned namespace")
    orphaned_namespace_name = string(default=".orphaned", doc="Its name")
    orphaned_namespace_id = string(default="orphaned", doc="Its id")
    skip_labels = boolean(default=False, doc="Add no labels")
    skip_pod_labels = boolean(default=False, doc="Add no labels of pods")
    skip_namespace_labels = boolean(default=False, doc="Add no labels of namespaces")
    skip_container_metadata = boolean(default=False, doc="Add no image and no image's id")
    skip_master_url = boolean(default=False, doc="Add no URL of the API server")
    skip_namespace_metadata = boolean(default=False, doc="Do not ask for namespaces")
    include_ownerrefs_metadata = boolean(default=False, doc="Add who owns the pod")
    test_api_adapter = string(default=None, obsoleted="it is a class of Ruby", doc="Refused")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        drop_blanks(self, "kubernetes_url", "ca_file", "client_cert", "client_key", "bearer_token_file")
        try:
            self._pattern = TagPattern(self.tag_to_kubernetes_name_regexp)
        except ValueError as error:
            name = "tag_to_kubernetes_name_regexp"
            problems.error(f'parameter "{name}": {error}', self.place_of(name))
        self._annotations: list[re.Pattern[str]] = []
        for text in self.annotation_match:
            try:
                self._annotations.append(compile_ruby(text.strip("/")))
            except ValueError as error:
                problems.error(f'parameter "annotation_match": {error}', self.place_of("annotation_match"))
        for name in ("cache_size", "watch_retry_interval", "watch_retry_exponential_backoff_base"):
            if getattr(self, name) < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))
        self._url: str | None = self.kubernetes_url or _of_environment()
        self._endpoint: Endpoint | None = None
        self._tls: TlsConfig | None = None
        if self._url is not None:
            self._validate_server(self._url, problems)

    def _validate_server(self, url: str, problems: Problems) -> None:
        try:
            self._endpoint = parse(url)
        except Error as error:
            problems.error(error.message, self.place_of("kubernetes_url"))
            return
        secrets = Path(self.secret_dir)
        found = {"ca_file": secrets / "ca.crt", "bearer_token_file": secrets / "token"}
        for name, path in found.items():
            if not getattr(self, name) and path.is_file():
                self.__dict__[name] = str(path)
        if (self.client_cert is None) != (self.client_key is None):
            problems.error("client_cert and client_key are set together", self.place)
        token = self.bearer_token_file
        if token is not None and not Path(token).is_file():
            problems.error(f'bearer_token_file "{token}" does not exist', self.place_of("bearer_token_file"))
        if self._endpoint.scheme == "https":
            self._tls = client_tls(
                self,
                problems,
                {"ca_file": self.ca_file, "client_cert": self.client_cert, "client_key": self.client_key},
                ca_path=self.ca_file,
                cert=self.client_cert,
                key=self.client_key,
                verify_mode="peer" if self.verify_ssl else "none",
            )


def _of_environment() -> str | None:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    with contextlib.suppress(ValueError):  # it may be a name
        host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    return f"https://{host}:{port}/api"
