"""`python -m convgrad_cli` is `convgrad`."""

from .main import main

main()
