"""The gateway: nginx's job. It knows no Lua and no pipeline.

The way of a request, with file names:

    core.http1.server -> server.py (which virtual server; servernames.py) -> uri.py (normalise) -> location.py
      -> phases.py (the order of the phases, written once) -> a handler of a directive family
      -> request.py (the answer; head.py its header, filters.py the order of the filters, filesend.py files)
      -> core.http1.server -> logphase.py (log.py, accesslog.py)
    a code that is not an answer -> special.py (pages.py; error_page and internal redirects begin again)

The way of a configuration: conf.nginx gives a tree; build.py walks it with the directive families of registry.py
(one file each in families/), which write into a scope.py Scope per level; at the end each family composes what every
location runs, and ports.py brings together which servers share which socket. The result is a gateway.py Gateway:
listen addresses, virtual servers, logs, no open socket yet.

Texts with variables are compiled by values.py; variables.py resolves names to getters, the core's are in corevars.py.
"""
