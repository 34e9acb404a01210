"""The gateway: nginx's job. It knows no Lua and no pipeline.

The way of a request, with file names:

    core.http1.server -> server.py (which virtual server) -> uri.py (normalise) -> location.py (which location)
      -> phases.py (the order of the phases, written once) -> a handler of a directive family
      -> request.py (status, headers, body of the answer) -> filters.py (their order, written once)
      -> core.http1.server; then the log phase: log.py, accesslog.py

The way of a configuration: conf.nginx gives a tree; build.py walks it with the directive families of registry.py
(one file each in families/), which write into a scope.py Scope per level; at the end each family composes the
handlers of every location. The result is a server.py Gateway: listen addresses and virtual servers, no sockets.
"""
