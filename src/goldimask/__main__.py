"""`python -m goldimask`: the command line, also under torchrun."""

from goldimask.cli import main

main()
