"""The s3 output, against moto's server, and against a scripted one for what goes wrong."""

import asyncio
import gzip
import json
import lzma
import sys

import boto3
import pytest
import zstandard
from eco_rig import SECOND, output
from http_rig import problems_of
from moto.server import ThreadedMotoServer

from headrace.plugins.out_s3 import parameters
from headrace.testing.contracts import check_output
from headrace.testing.origin import Origin, Reply, ok

TIME = 1_700_000_000 * SECOND


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


BUFFER = """
<buffer {keys}>
  @type memory
  timekey 3600
  timekey_wait 0
  timekey_use_utc true
  retry_wait 0.01
  retry_randomize false
  {extra}
</buffer>
"""
KEY = "aws_key_id AKIAEXAMPLE\naws_sec_key secretword\n"


def conf(url, more="", *, bucket="logs", keys="time", extra="", credentials=KEY):
    text = f"@type s3\ns3_bucket {bucket}\ns3_endpoint {url}\nforce_path_style true\n{credentials}{more}\n"
    return text + BUFFER.format(keys=keys, extra=extra)


class Bucket:
    """What is in a bucket."""

    def __init__(self, url, name):
        self.name = name
        self.client = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )

    def get(self, key):
        answer = self.client.get_object(Bucket=self.name, Key=key)
        return answer["Body"].read(), answer

    def keys(self):
        return [found["Key"] for found in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def all(self):
        return {key: self.get(key) for key in list(self.keys())}


async def stored(moto, name, more, *batches, tag="app.web", **options):
    """The bucket after some flushes."""
    async with output(conf(moto, more, bucket=name, **options)) as running:
        for batch in batches:
            await running.emit(tag, *batch, time=TIME)
            await running.idle()
        assert running.figures()["retry_count"] == 0, running.log.getvalue()
        running.stats = running.plugin.stats()
    return await asyncio.to_thread(Bucket(moto, name).all)


async def test_gzip_with_index_and_a_bucket_that_is_made(moto):
    more = "path ${tag}/%Y/"
    found = await stored(moto, "made", more, [{"a": 1}, {"a": 2}], [{"a": 3}], keys="tag,time")
    assert sorted(found) == ["app.web/2023/2023111422_0.gz", "app.web/2023/2023111422_1.gz"]
    body, headers = found["app.web/2023/2023111422_0.gz"]
    lines = gzip.decompress(body).decode().splitlines()
    assert [line.split("\t")[1:] for line in lines] == [["app.web", '{"a":1}'], ["app.web", '{"a":2}']]
    assert headers["ContentType"] == "application/x-gzip"


@pytest.mark.parametrize(
    ("store_as", "extension", "type_", "unpack"),
    [
        ("json", "json", "application/json", bytes),
        ("text", "txt", "text/plain", bytes),
        ("gzip_command\ncommand_parameter -9", "gz", "application/x-gzip", gzip.decompress),
        ("lzma2\ncommand_parameter -qf1", "xz", "application/x-xz", lzma.decompress),
        (
            "zstd\n<compress>\nlevel 5\n</compress>",
            "zst",
            "application/x-zst",
            lambda data: zstandard.ZstdDecompressor().decompress(data, 1 << 20),
        ),
    ],
)
async def test_forms(moto, store_as, extension, type_, unpack):
    more = f"store_as {store_as}\n<format>\n@type json\n</format>"
    found = await stored(moto, f"form-{extension}{len(store_as)}", more, [{"a": 1}])
    ((key, (body, headers)),) = found.items()
    assert key == f"2023111422_0.{extension}"
    assert headers["ContentType"] == type_
    assert unpack(body) == b'{"a":1}\n'


async def test_a_chunk_that_is_compressed_already_is_taken_as_it_is(moto):
    found = await stored(moto, "kept", "", [{"a": 1}], extra="compress gzip")
    ((body, _headers),) = found.values()
    assert b'{"a":1}' in gzip.decompress(body)


async def test_placeholders_of_keys(moto):
    more = (
        "store_as text\npath p-${tag}-\nindex_format %04x\nhex_random_length 6\ntime_slice_format %Y%m%d-%H\n"
        "s3_object_key_format %{path}%{time_slice}-%{index}-%{hex_random}-%{uuid_flush}-${chunk_id}.%{file_extension}\n"
        's3_metadata {"tag":"${tag}","i":"n%{index}"}'
    )
    found = await stored(moto, "keys", more, [{"a": 1}], keys="tag,time", tag="a%{index}b")
    ((key, (_, headers)),) = found.items()
    path, _, rest = key.partition("-20231114-22-")
    assert path == "p-a%{index}b"
    parts = rest.removesuffix(".txt").split("-")
    assert parts[0] == "0000"
    assert len(parts[1]) == 6
    assert parts[-1][::-1].startswith(parts[1])
    assert len(parts) == 8
    assert headers["Metadata"] == {"tag": "a%{index}b", "i": "n0000"}


async def test_without_a_look_at_objects(moto):
    found = await stored(moto, "unchecked", "check_object false\nstore_as text\npath p", [{"a": 1}])
    (key,) = found
    assert key.startswith("p/2023111422_")
    assert len(key) == len("p/2023111422_HHMMSS.txt")


async def test_overwrite(moto):
    more = "s3_object_key_format %{path}one.%{file_extension}\nstore_as json\noverwrite true\n<format>\n@type json\n</format>"
    found = await stored(moto, "over", more, [{"a": 1}], [{"a": 2}])
    assert [body for body, _ in found.values()] == [b'{"a":2}\n']


async def test_several_lanes_choose_different_keys(moto):
    options = {"extra": "flush_thread_count 4\nflush_mode immediate\nchunk_limit_records 1", "keys": "time"}
    async with output(conf(moto, "store_as text", bucket="lanes", **options)) as running:
        for number in range(12):
            await running.emit("t", {"n": number}, time=TIME)
        await running.idle()
        assert running.figures()["delivered"] == 12
    keys = await asyncio.to_thread(Bucket(moto, "lanes").keys)
    assert sorted(keys) == sorted(f"2023111422_{index}.txt" for index in range(12))


async def test_options_of_objects_reach_s3():
    seen = {}

    def script(request):
        if request.method == "PUT":
            seen.update({name.lower(): value for name, value in request.headers})
        return ok(status="404 Not Found" if request.method == "HEAD" and request.target != "/logs" else "200 OK")

    more = """
        acl private
        storage_class STANDARD_IA
        use_server_side_encryption aws:kms
        ssekms_key_id key-1
        tagging a=b
        grant_read id="1"
        checksum_algorithm SHA256
        compute_checksums true
    """
    async with Origin(script) as origin, output(conf(origin.url(), more)) as running:
        await running.emit("t", {"a": 1}, time=TIME)
        await running.idle()
        assert "secretword" not in running.log.getvalue()
    assert seen["x-amz-acl"] == "private"
    assert seen["x-amz-storage-class"] == "STANDARD_IA"
    assert seen["x-amz-server-side-encryption"] == "aws:kms"
    assert seen["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
    assert seen["x-amz-tagging"] == "a=b"
    assert "x-amz-checksum-sha256" in seen or seen.get("x-amz-trailer") == "x-amz-checksum-sha256"
    assert "Credential=AKIAEXAMPLE/" in seen["authorization"]


def error(code, status="503 Slow"):
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    return ok(body, status=status, headers=["Content-Type: application/xml"])


@pytest.mark.parametrize(
    "reply",
    [
        error("SlowDown"),
        error("AccessDenied", "403 Forbidden"),
        Reply(b"", reset=True),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Le", close=True),
    ],
)
async def test_a_failed_put_is_tried_again_under_the_same_key(reply):
    puts = []

    def script(request):
        if request.method == "PUT":
            puts.append(request.target)
            if len(puts) == 1:
                return reply
        missing = request.method == "HEAD" and request.target.count("/") > 1
        return ok(status="404 Not Found" if missing else "200 OK")

    async with Origin(script) as origin, output(conf(origin.url())) as running:
        await running.emit("t", {"a": 1}, time=TIME)
        await running.idle()
        assert running.figures()["delivered"] == 1
        # A connection that breaks is tried once more by the client itself.
        assert running.figures()["retry_count"] == bool(reply.data.endswith(b"</Error>"))
    assert puts == ["/logs/2023111422_0.gz"] * 2


async def test_what_s3_never_takes_is_given_up():
    def script(request):
        if request.method == "PUT":
            return error("EntityTooLarge", "400 Bad Request")
        return ok(status="404 Not Found" if request.target.count("/") > 1 else "200 OK")

    async with Origin(script) as origin, output(conf(origin.url())) as running:
        await running.emit("t", {"a": 1}, time=TIME)
        await running.idle()
        assert running.figures()["dropped"]["backed_up"] == 1


async def test_a_bucket_that_may_not_be_made_is_told_of_at_once_and_waited_for(moto):
    more = "auto_create_bucket false"
    async with output(conf(moto, more, bucket="later")) as running:
        await running.until(lambda: "does not exist: bucket = later" in running.log.getvalue())
        await running.emit("t", {"a": 1}, time=TIME)
        running.flush()
        await running.until(lambda: running.figures()["retry_count"])
        await asyncio.to_thread(Bucket(moto, "later").client.create_bucket, Bucket="later")
        await running.idle()
        assert running.figures()["delivered"] == 1


async def test_lifecycle_rules(moto):
    rule = "<bucket_lifecycle_rule>\nid old\nprefix x/\nexpiration_days 7\n</bucket_lifecycle_rule>"
    await stored(moto, "rules", rule, [{"a": 1}])
    client = Bucket(moto, "rules").client
    (found,) = (await asyncio.to_thread(client.get_bucket_lifecycle_configuration, Bucket="rules"))["Rules"]
    assert (found["ID"], found["Expiration"]["Days"], found["Filter"]["Prefix"]) == ("old", 7, "x/")
    await stored(moto, "rules", rule, [{"a": 1}])


async def test_credentials_of_a_role_and_of_a_token(moto, tmp_path):
    role = f"<assume_role_credentials>\nrole_arn arn:aws:iam::123456789012:role/r\nrole_session_name session\nsts_endpoint_url {moto}\nduration_seconds 900\n</assume_role_credentials>"
    assert len(await stored(moto, "role", role, [{"a": 1}])) == 1
    token = tmp_path / "token"
    token.write_text("t" * 20)
    web = f"<web_identity_credentials>\nrole_arn arn:aws:iam::123456789012:role/r\nrole_session_name session\nweb_identity_token_file {token}\nsts_endpoint_url {moto}\n</web_identity_credentials>"
    assert len(await stored(moto, "web", web, [{"a": 1}], credentials="")) == 1


async def used_key(more):
    seen = []

    def script(request):
        if request.method == "PUT":
            seen.append(request.header("authorization"))
        return ok(status="404 Not Found" if request.method == "HEAD" and request.target.count("/") > 1 else "200 OK")

    async with Origin(script) as origin, output(conf(origin.url(), more, credentials="")) as running:
        await running.emit("t", {"a": 1}, time=TIME)
        await running.idle()
    return seen[0].partition("Credential=")[2].partition("/")[0]


async def test_credentials_of_a_program_and_of_a_file(tmp_path, monkeypatch):
    answer = json.dumps({"Version": 1, "AccessKeyId": "PRINTED", "SecretAccessKey": "x"})
    program = tmp_path / "program.py"
    program.write_text(f"print('''{answer}''')")
    assert await used_key(f"aws_credential_process {sys.executable} {program}") == "PRINTED"
    file = tmp_path / "shared"
    file.write_text("[other]\naws_access_key_id = FILED\naws_secret_access_key = y\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRON")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "z")
    section = f"<shared_credentials>\npath {file}\nprofile_name other\n</shared_credentials>"
    assert await used_key(section) == "FILED"
    assert await used_key("") == "ENVIRON"


async def test_a_program_that_fails_is_told_of_without_what_it_printed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; print('hush'); sys.exit('no luck')")
    async with Origin() as origin:
        more = f"aws_credential_process {sys.executable} {program}"
        async with output(conf(origin.url(), more, credentials="")) as running:
            await running.until(lambda: "no luck" in running.log.getvalue())
            assert "hush" not in running.log.getvalue()


async def test_delays_are_told_of(moto):
    async with output(conf(moto, "warn_for_delay 1d", bucket="late")) as running:
        await running.emit("t", {"a": 1}, time=TIME)
        await running.idle()
        assert "delayed events were put to s3://late/2023111422_0.gz" in running.log.getvalue()


BASE = "<match **>\n@type s3\ns3_bucket b\n{}\n</match>"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("store_as lzo", 'store_as "lzo" is not supported'),
        ("store_as parquet", "not supported"),
        ("s3_endpoint https://s3.eu-west-1.amazonaws.com", "use s3_region"),
        ("s3_endpoint localhost:9000", "no URL"),
        ("s3_object_key_format %{uuid}", "is removed"),
        ("index_format %5d", "index_format must be"),
        ("hex_random_length 17", "less than or equal to 16"),
        ("aws_key_id a", "set together"),
        ("signature_version v2", "signature_version is"),
        ("ssl_ca_bundle /nowhere", "does not exist"),
        ("ssl_ca_directory /etc", "is removed"),
        ("command_parameter --fast", "must be a level"),
        ("path ${tag}", '"tag" is not a chunk key'),
        ("<assume_role_credentials>\nrole_arn a\n</assume_role_credentials>", '"role_session_name" is required'),
        ("<web_identity_credentials>\n</web_identity_credentials>", '"web_identity_token_file" is required'),
        ("<compress>\nlevel 40\n</compress>", "from 1 to 22"),
    ],
)
def test_check(more, told):
    errors, _ = problems_of("output", BASE.format(more))
    assert any(told in error for error in errors), errors


def test_a_missing_extra_is_told_of(monkeypatch):
    monkeypatch.setattr(parameters, "aiobotocore_installed", lambda: False)
    errors, _ = problems_of("output", BASE.format(""))
    assert any("pip install 'headrace[s3]'" in error for error in errors), errors


def test_contract():
    asyncio.run(check_output(BASE.format("s3_endpoint http://127.0.0.1:1\n" + KEY)))


def test_what_is_given_and_empty_is_not_given():
    text = "<match **>\n@type s3\ns3_bucket b\naws_key_id \naws_sec_key \ns3_endpoint \nssl_ca_bundle \nacl \n</match>"
    assert problems_of("output", text.replace(" \n", ' ""\n'))[0] == []
