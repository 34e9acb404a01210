"""The Lua phases of stream {}, after stream-lua-nginx-module.

    directives.py  the directives, with the contexts of the block
    handlers.py    preread_by_lua, content_by_lua, log_by_lua: sessions stand where http has requests
    side.py        what the VM of sessions has: its files of prelude/, its functions of the host
    client.py      the connection of a session, read and written by scripts

https://github.com/openresty/stream-lua-nginx-module#readme
"""
