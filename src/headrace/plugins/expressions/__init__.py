"""Expressions in configurations: Ruby's and Python's, each a whitelist of syntax, compiled once.

- ruby_syntax.py    Ruby text -> nodes; what is no part of the subset is refused with its column
- ruby_words.py     the literals of that grammar: strings, symbols, patterns, numbers
- ruby_emit.py      nodes -> Python, made of fixed templates and names of ours
- ruby_values.py    what operators, truth and interpolation mean
- ruby_methods.py   the methods of texts, numbers, arrays, hashes; ruby_text_methods.py the larger ones of texts
- ruby_time.py      Time
- python.py         Python's own syntax, by its own parser, with a whitelist
- variables.py      what expressions see, and the function that is made of them

Nothing of the configuration is ever evaluated as it stands: literals reach the compiled code as constants by name.
"""
