"""``python -m kvmodel``."""

from kvmodel.cli import main

main()
