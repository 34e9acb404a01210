"""The command lines, one module each: flags in, `topology.Options` out, an exit status back.

main.py     headrace run, check, stats, plugins, version
nginx.py    headrace-nginx        fluentd.py  headrace-fluentd        resty.py  headrace-resty
launch.py   what all of them do to start: build the plan, tell what is wrong, hand over to the supervisor
"""
