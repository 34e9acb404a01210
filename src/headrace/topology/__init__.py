"""From files to running parts.

    options.py   what the command line says            detect.py    which language a file is in
    plan.py      files -> Plan: process settings, gateway, pipeline; the supervisor runs it
    gateway.py   nginx.conf -> edge's Gateway, with Lua only when the file has Lua
    pipelines.py fluent.conf -> one Pipeline per worker
    run.py       the order of things in a worker: outputs start first, inputs stop first
    modules.py   which of nginx's modules have a counterpart here
    bridge.py    access log records into the pipeline of the same process

Here alone edge, lua, pipeline and plugins meet.
"""
