"""Unit tests of pipelines, written beside the configuration; docs/testing.md tells users.

    NAME.test.yaml --cases.py--> Case --stage.py--> what arrived where --compare.py--> Failure, with file:line

cases.py     the file format: text -> cases, every part with its place
stage.py     a pipeline in virtual time whose outputs keep what comes to them; nothing outside the process is touched
compare.py   what was expected against what arrived
run.py       one after the other
"""
