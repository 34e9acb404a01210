"""A configuration as text: secrets never in it, wherever they stand."""

import pytest

from headrace.conf.fluent import parse
from headrace.pipeline.dump import conf_text
from headrace.plugins.registry import lookup

TEXT = """
<system>
  log_level info
</system>
<source>
  @type http
  <transport tls>
    private_key_passphrase sesame1
  </transport>
</source>
<match a.**>
  @type copy
  <store>
    @type http
    endpoint http://user:sesame2@x/y
    headers {"a":"b"}
    <auth>
      password sesame3
    </auth>
    <buffer tag,time>
      timekey 1h
    </buffer>
  </store>
  <store>
    @type somebody_elses
    api_key sesame4
    <deep>
      my_password sesame5
    </deep>
  </store>
</match>
"""


def test_secrets_are_hidden():
    text = conf_text(parse(TEXT, "x.conf", env={}), lookup)
    assert "sesame" not in text
    assert text.count("xxxxxx") == 5
    assert 'endpoint "http://user:xxxxxx@x/y"' in text


def test_the_form():
    text = conf_text(parse("<match a.**>\n@type null\nnever_flush true\n</match>", "x.conf", env={}), lookup)
    assert text == "<ROOT>\n  <match a.**>\n    @type null\n    never_flush true\n  </match>\n</ROOT>"


@pytest.mark.parametrize(
    "line",
    [
        """headers {"Authorization":"Bearer sesame", "a":"b"}""",
        """headers {"x-api-key":"ses\\"ame", "a":"b"}""",
        """headers Authorization:Bearer sesame,a:b""",
        """headers a:b,X-Auth-Token:sesame""",
        """headers_from_placeholders {"cookie":"sesame", "a":"b"}""",
    ],
)
@pytest.mark.parametrize("plugin", ["http", "somebody_elses"])
def test_fields_with_secrets_are_hidden(line, plugin):
    text = conf_text(
        parse(f"<match **>\n@type {plugin}\nendpoint http://x\n{line}\n</match>", "x.conf", env={}), lookup
    )
    assert "sesame" not in text
    assert "ame" not in text.replace("somebody", "").partition("headers")[2].partition("\n")[0]
    assert "xxxxxx" in text
    assert "b" in text.partition("headers")[2].partition("\n")[0]
