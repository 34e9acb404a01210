"""`python -m headrace` is `headrace`."""

from headrace.cli import main

raise SystemExit(main())
