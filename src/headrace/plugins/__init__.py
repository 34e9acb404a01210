"""The plugins that come with headrace: one module for each, a folder where one is not enough.

registry.py says which class an `@type` names, and imports its module when a configuration asks for it.
The names of the modules are Fluentd's: in_* sources, out_* outputs, filter_*, parser_*, formatter_*,
buf_* buffers. Plugins reach sockets through `headrace.core` only.
"""
