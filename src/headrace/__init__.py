"""headrace: Fluentd pipelines and OpenResty gateways in one data plane.

The law of one owner: every connection and every chain of unsent bytes has exactly one owner, who
appends, flushes and closes it. What a byte costs never depends on what another owner has pending.

The way of a byte, with the files it passes:

    configuration   conf/fluent.py, conf/nginx.py -> conf/tree.py -> topology/plan.py -> topology/run.py

    gateway         core/listener.py -> core/stream.py -> core/http1/server.py -> core/http1/exchange.py
                    (or core/http2/connection.py -> core/http2/exchange.py)
                    -> edge/server.py (virtual server) -> edge/phases.py (the order of the phases)
                    -> lua/handlers.py, lua/prelude/*.lua | edge/families/static.py | edge/families/python.py
                    | edge/upstream/visit.py (the upstream's connection) | edge/subrequest.py
                    -> edge/filters.py, edge/head.py -> core/chain.py (the connection's own)
                    and from Lua: lua/prelude/cosocket.lua (the cosocket's own)
                    last: edge/logphase.py -> topology/bridge.py -> pipeline/router.py

    pipeline        plugins/in_*.py -> pipeline/router.py -> plugins/filter_*.py -> pipeline/intake.py
                    -> pipeline/buffer.py (memory.py, or the journal on disk) -> pipeline/lanes.py
                    -> plugins/out_*.py -> core/connect.py, core/http1/client.py (the lane's own connection)

    processes       cli.py -> commands/*.py -> supervisor/master.py -> supervisor/worker.py

docs/architecture.md tells why.
"""

from headrace import version

__version__ = version.VERSION

__all__ = ["__version__"]
