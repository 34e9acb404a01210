"""Ruby's patterns (Onigmo) in Python: text -> nodes -> the syntax of `re`, or of `regex` where `re` lacks something.

- syntax.py     the grammar: text -> nodes, with Ruby's own refusals
- nodes.py      what a pattern is made of
- classes.py    bracket classes as sets of code points
- emit.py       nodes -> text for one of the two engines
- compile.py    the choice of the engine
"""

from headrace.conf.onigmo.compile import compile_ruby, group_names, translate

__all__ = ["compile_ruby", "group_names", "translate"]
