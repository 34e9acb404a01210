"""Server side includes: pages with commands in comments.

    scan.py       text and commands, as they come in
    language.py   texts with variables, conditions
    page.py       one page on its way: what each command does

https://nginx.org/en/docs/http/ngx_http_ssi_module.html
"""
