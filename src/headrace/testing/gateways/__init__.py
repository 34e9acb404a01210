"""Handlers of a gateway tested without a port: requests over socket pairs, virtual time, upstreams of the test.

    test --stage.py--> Gateway and its Lua VM, whole, from an nginx.conf
                       client: a socket pair that the gateway is given as an accepted connection
                       upstreams: every connection that Lua, proxy_pass or another module opens ends in the test
                       time: stands still while anything can go on, then jumps to the next moment that counts

virtual.py   the loop and the clocks of the process, moved by what waits
overlay.lua  what stands in for the system below the Lua side: its clock and its connections
peers.py     upstreams: bytes, or HTTP
stage.py     Stage: for pytest and whoever else runs Python
script.py    tests in Lua, for `headrace test nginx.conf`

docs/testing.md tells users.
"""
