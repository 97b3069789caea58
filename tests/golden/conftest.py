"""Makes the helpers of the conversations importable by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("scripted", "sides", "spoken")
