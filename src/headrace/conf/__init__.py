r"""Text -> tree -> typed settings; knows no sockets.

    fluent.conf --fluent.load--\                      /--> params.Configurable.configure -> typed values
                                +--> tree.Directive -+
    nginx.conf ---nginx.load---/                      \--> check.check_nginx (context, arguments, near miss)

Everything wrong is a `ConfError` with file and line, raised by the parsers, collected in `Problems` by the rest.
"""
