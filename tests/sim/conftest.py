"""A test of this folder runs the worlds of another, which it imports by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
