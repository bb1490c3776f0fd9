"""``python -m torq_byoc``."""

from torq_byoc.cli.main import main

main()
