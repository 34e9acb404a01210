"""The output `s3`: an object for each chunk, by aiobotocore (`pip install 'headrace[s3]'`).

    chunk --> compress.py (what store_as says) --> output.py (a key that is free, PUT) --> one client per lane

parameters.py        what is configured
credentials.py       whose credentials, and how they are renewed
keys.py              s3_object_key_format -> keys
compress.py          store_as
output.py            the bucket, and the way of a chunk

https://docs.fluentd.org/output/s3, https://github.com/fluent/fluent-plugin-s3

Different on purpose: the bucket and the credentials are looked at in the background after the start and before the
first object, so that a start does not depend on S3; a chunk that is tried again keeps the key of its first try; two
lanes never choose one key.
"""

from headrace.plugins.out_s3.output import S3Output

__all__ = ["S3Output"]
