"""The fixtures of the upstream tests; what they are made of is in upstream_rig.py."""

from upstream_rig import bare, nginx, origin, ours

__all__ = ["bare", "nginx", "origin", "ours"]
