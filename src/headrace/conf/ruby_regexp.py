"""Ruby's patterns, for who has no need to know how: see `headrace.conf.onigmo`."""

from headrace.conf.onigmo.compile import compile_ruby, group_names, translate

__all__ = ["compile_ruby", "group_names", "translate"]
