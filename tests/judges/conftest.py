"""Lets the tests import their kits, and those of spark/ the histories of the tests above them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
