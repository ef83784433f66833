"""`python -m pluribus`: the command line without an installed script."""

from pluribus.cli.start import main

main()
