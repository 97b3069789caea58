"""Makes the kits of these tests importable, and this folder's histories for those in spark/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
