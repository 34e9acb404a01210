"""What Lua calls in Python, one file for each group of ngx functions.

Every function takes the handle of a request (an integer) or plain values, and returns bytes, integers, None or tuples
of them. None of them calls back into Lua: what has to, goes through the loop. A class per file holds what its
functions share; `functions()` gives them by the names the prelude uses.
"""
