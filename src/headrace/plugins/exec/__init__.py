"""Child processes of plugins: in_exec, out_exec and out_exec_filter.

child.py     one process: started, read and written to, ended within a bound
reading.py   its output -> messages -> events, by the kind of its parser
"""
