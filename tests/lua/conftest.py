"""The fixtures of the Lua tests; what they are made of is in lua_rig.py, which tests import by its own name."""

from lua_rig import gateway, nginx, origin

__all__ = ["gateway", "nginx", "origin"]
