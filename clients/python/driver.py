"""Starts the driver from a checkout: `python clients/python/driver.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

from tenure._driver import main

main()
