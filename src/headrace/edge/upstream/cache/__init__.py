"""Answers of upstreams kept on disk: proxy_cache and its kind.

- fresh.py: how long an answer may be kept, from its head and the configuration. No I/O.
- heads.py: heads as they are stored and compared. No I/O.
- entry.py: one file: what is known of the answer, its head, its body; written aside and renamed, so that it is whole.
- zone.py: the files of one proxy_cache_path, what is used least, who is asking for what.
- purge.py: what a request takes out of the cache.
- cacher.py: the part of a visit that looks into the cache, and what becomes of an answer.

Files are shared by all workers. Who is fetching what (proxy_cache_lock, `updating`) is known within one worker.
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache
"""
