"""The output `s3`: the bucket, and the way of a chunk."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error, Side, Unrecoverable
from headrace.pipeline.throttle import Throttle
from headrace.plugins.out_s3.compress import STORES, level_of
from headrace.plugins.out_s3.credentials import make_session
from headrace.plugins.out_s3.keys import Keys, slice_format
from headrace.plugins.out_s3.parameters import UNIQUE, S3Parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter

THREADED: Final = 128 << 10
"""Bytes from which a chunk is compressed in a thread."""
KEPT: Final = 1024
"""Series of keys whose last index is remembered."""
_ABSENT: Final = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
_HOPELESS: Final = frozenset({"EntityTooLarge", "KeyTooLongError", "MetadataTooLarge"})


class S3Output(S3Parameters):
    """Stores chunks as objects of S3."""

    def provision(self, context: Context) -> None:
        """Make the formatter and what makes keys."""
        runner = self.runner
        if runner is None:  # the buffer is wrong, and reported
            return
        if self.format_section is None:
            self._formatter: Formatter = context.make_default("formatter", "out_file", self, "format")
        else:
            self._formatter = context.make("formatter", self.format_section, default_type="out_file")
        self._inject = self.inject.injector(context, self)
        if self._inject is None:
            self.format_many = self._formatter.format_many
        self._store = STORES[self.store_as]
        given = level_of(self.command_parameter) if self.command_parameter else None
        self._level = self.compress.level if self.store_as == "zstd" else self._store.level if given is None else given
        self._keys = Keys(
            self.s3_object_key_format,
            path=self.path,
            extension=self._store.extension,
            hostname=context.hostname,
            index_format=self.index_format,
            hex_length=self.hex_random_length,
            slice_form=self.time_slice_format or slice_format(runner.keys.timekey),
            zone=runner.keys.zone,
        )
        parallel = context.settings.workers > 1
        if parallel and not any(name in self.s3_object_key_format for name in UNIQUE):
            context.problems.warn(
                "several workers may choose one key, and one object be lost",
                self.place_of("s3_object_key_format"),
                hint=f"put one of {', '.join(UNIQUE)} into s3_object_key_format",
            )
        self._clients: dict[int, Any] = {}
        self._session: Any = None
        self._chosen: dict[bytes, tuple[str, int]] = {}
        self._taken: set[str] = set()
        self._indexes: dict[tuple[str, ...], int] = {}
        self._ready = False
        self._checking: asyncio.Task[None] | None = None
        self._delays = Throttle()
        self.objects = 0
        self.bytes = 0

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record as the formatter writes it."""
        if self._inject is not None:
            record = self._inject(tag, time, record)
        return self._formatter.format(tag, time, record)

    async def start(self) -> None:
        """Look at the bucket in the background, so that wrong credentials are told long before the first object."""
        self._session = make_session(self)
        self._lock = asyncio.Lock()
        if self.check_apikey_on_start or self.check_bucket:
            self._checking = self.context.loop.create_task(self._first_look())

    async def _first_look(self) -> None:
        try:
            await self._prepare(await self._client(-1))
        except Error as error:
            why = error.message
            self.log.log(logging.ERROR, "can't call S3 API. Please check your credentials or s3_region: %s", why)
        finally:
            await self._close(-1)

    # Clients.

    async def _client(self, lane: int) -> Any:
        """The lane's own client: nobody else uses its connections."""
        client = self._clients.get(lane)
        if client is None:
            from aiobotocore.config import AioConfig  # noqa: PLC0415 - an optional dependency

            proxies = {"http": self.proxy_uri, "https": self.proxy_uri} if self.proxy_uri else None
            checksums = {None: None, True: "when_supported", False: "when_required"}[self.compute_checksums]
            options: dict[str, Any] = {"request_checksum_calculation": checksums} if checksums else {}
            if self.signature_version is not None:
                options["signature_version"] = "s3" if self.signature_version == "s3" else "s3v4"
            config = AioConfig(
                retries={"total_max_attempts": 1},  # the buffer retries
                proxies=proxies,
                s3={
                    "addressing_style": "path" if self.force_path_style else "auto",
                    "use_accelerate_endpoint": self.enable_transfer_acceleration,
                    "use_dualstack_endpoint": self.enable_dual_stack,
                },
                **options,
            )
            made = self._session.create_client(
                "s3",
                region_name=self.region,
                endpoint_url=self.s3_endpoint,
                verify=self.ssl_ca_bundle if self.ssl_verify_peer else False,
                config=config,
            )
            try:
                client = await made.__aenter__()
            except Exception as error:
                raise _failure(error) from error
            self._clients[lane] = client
        return client

    async def _close(self, lane: int) -> None:
        client = self._clients.pop(lane, None)
        if client is not None:
            await client.__aexit__(None, None, None)

    # The bucket.

    async def _prepare(self, client: Any) -> None:
        """Look at the bucket, once; make it where that is wanted. Raises Error."""
        async with self._lock:
            if self._ready:
                return
            try:
                if self.check_bucket:
                    await self._ensure_bucket(client)
                elif self.check_apikey_on_start:
                    await client.list_objects_v2(Bucket=self.s3_bucket, Prefix=self.path.partition("$")[0], MaxKeys=1)
                if self.bucket_lifecycle_rules:
                    await self._ensure_rules(client)
            except Exception as error:
                raise _failure(error) from error
            self._ready = True

    async def _ensure_bucket(self, client: Any) -> None:
        if await self._there(client.head_bucket, Bucket=self.s3_bucket):
            return
        if not self.auto_create_bucket:
            raise Error(f"The specified bucket does not exist: bucket = {self.s3_bucket}", retryable=True)
        self.log.info("creating bucket %s", self.s3_bucket)
        where = {"CreateBucketConfiguration": {"LocationConstraint": self.region}} if self.region != "us-east-1" else {}
        await client.create_bucket(Bucket=self.s3_bucket, **where)

    async def _ensure_rules(self, client: Any) -> None:
        wanted = [
            {
                "ID": rule.id_,
                "Expiration": {"Days": rule.expiration_days},
                "Filter": {"Prefix": rule.prefix},
                "Status": "Enabled",
            }
            for rule in sorted(self.bucket_lifecycle_rules, key=lambda rule: rule.id_)
        ]
        found: list[dict[str, Any]] = []
        from botocore.exceptions import ClientError  # noqa: PLC0415 - an optional dependency

        try:
            answer = await client.get_bucket_lifecycle_configuration(Bucket=self.s3_bucket)
            found = sorted(answer.get("Rules", []), key=lambda rule: rule.get("ID", ""))
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                raise
        if [{name: rule.get(name) for name in wanted[0]} for rule in found] != wanted:
            self.log.info("configuring the lifecycle rules of bucket %s", self.s3_bucket)
            await client.put_bucket_lifecycle_configuration(
                Bucket=self.s3_bucket, LifecycleConfiguration={"Rules": wanted}
            )

    @staticmethod
    async def _there(look: Any, **what: str) -> bool:
        """Whether a bucket or an object is there. Raises botocore's errors."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - an optional dependency

        try:
            await look(**what)
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                return False
            raise
        return True

    # The way of a chunk.

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Store a chunk as an object. Raises Error."""
        client = await self._client(lane.index)
        await self._prepare(client)
        body = await self._content(chunk)
        try:
            key, number = await self._key(client, chunk)
            options = self._options
            if self.s3_metadata is not None:
                index = self._keys.index(number)
                metadata = {
                    name: index.join([chunk.extract_placeholders(part) for part in text.split("%{index}")])
                    for name, text in self.s3_metadata.items()
                }
                options = {**options, "Metadata": metadata}
            await client.put_object(Bucket=self.s3_bucket, Key=key, Body=body, **options)
        except Exception as error:
            raise _failure(error) from error
        self._chosen.pop(chunk.id, None)
        self._taken.discard(key)
        self.objects += 1
        self.bytes += len(body)
        self._warn_for_delay(chunk, key)

    @property
    def _options(self) -> dict[str, Any]:
        return {"ContentType": self._store.content_type, **self.put_options()}

    async def _content(self, chunk: Chunk) -> bytes:
        body = self._store.content(chunk)
        if body is not None:
            return body
        assert self._store.pack is not None
        text = chunk.read()
        if len(text) < THREADED:
            return self._store.pack(text, self._level)
        return await self.context.loop.run_in_executor(None, self._store.pack, text, self._level)

    async def _key(self, client: Any, chunk: Chunk) -> tuple[str, int]:
        """The key for a chunk, and its index: that of an earlier try, else the first that is free."""
        chosen = self._chosen.get(chunk.id)
        if chosen is not None:
            return chosen
        parts = self._keys.parts(chunk, self.context.clock.wall_ns())
        number, key = 0, ""
        for number, key in self._candidates(parts):  # noqa: B007 - the first that is free is wanted after the loop
            if not self.check_object or await self._claim(client, key):
                break
            if not self._keys.indexed:
                if not self.overwrite:
                    hint = "use %{index} in s3_object_key_format"
                    raise Error(f"duplicated path is generated: path = {key} ({hint})", kind="key", retryable=True)
                self.log.warning("%s already exists, but will overwrite", key)
                break
        if self._keys.indexed:
            if len(self._indexes) >= KEPT:
                self._indexes.clear()
            self._indexes[parts] = number
        self._remember(chunk, key, number)
        return key, number

    async def _claim(self, client: Any, key: str) -> bool:
        """Take a key that no other lane has and no object; it is ours from before the question to S3 on."""
        if key in self._taken:
            return False
        self._taken.add(key)
        free = False
        try:
            free = not await self._there(client.head_object, Bucket=self.s3_bucket, Key=key)
        finally:
            if not free:
                self._taken.discard(key)
        return free

    def _candidates(self, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        """Keys to try; the search goes on where it ended."""
        number = self._indexes.get(parts, -1) + 1
        while True:
            yield number, self._keys.index(number).join(parts)
            number += 1

    def _remember(self, chunk: Chunk, key: str, number: int) -> None:
        self._chosen[chunk.id] = (key, number)
        runner = self.runner
        if runner is not None and len(self._chosen) > len(runner.buffer.queued) + len(runner.buffer.in_flight):
            live = runner.buffer.queued.keys() | runner.buffer.in_flight.keys() | {chunk.id}
            for id_ in [id_ for id_ in self._chosen if id_ not in live]:
                self._taken.discard(self._chosen.pop(id_)[0])

    def _warn_for_delay(self, chunk: Chunk, key: str) -> None:
        timekey = chunk.meta.timekey
        if self.warn_for_delay is None or timekey is None:
            return
        if timekey < self.context.clock.wall_ns() / 1e9 - self.warn_for_delay:
            message = "delayed events were put to s3://%s/%s"
            self._delays.log(self.log, logging.WARNING, message, self.s3_bucket, key)

    async def stop(self) -> None:
        """Close the clients of all lanes."""
        if self._checking is not None and not self._checking.done():
            self._checking.cancel()
            await asyncio.wait({self._checking})
        for lane in list(self._clients):
            await self._close(lane)

    def stats(self) -> dict[str, Any]:
        """Objects and bytes stored, and clients."""
        return {"objects": self.objects, "bytes": self.bytes, "clients": len(self._clients)}


def _failure(error: Exception) -> Error:
    """An error of aiobotocore as one of ours. What S3 refuses for its form is not tried again."""
    if isinstance(error, Error):
        return error
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an optional dependency

    if isinstance(error, ClientError):
        found = error.response.get("Error", {})
        code, text = str(found.get("Code", "")), str(found.get("Message", ""))
        if code in _HOPELESS:
            return Unrecoverable(f"{code}: {text}", kind="s3")
        return Error(f"{error.operation_name}: {code} {text}".rstrip(), kind="s3", side=Side.SERVER, retryable=True)
    if isinstance(error, (BotoCoreError, OSError, TimeoutError)):
        return Error(f"{type(error).__name__}: {error}", kind="s3", side=Side.SERVER, retryable=True)
    raise error
