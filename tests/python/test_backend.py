"""The backend as torch.compile sees it."""

import subprocess
import sys


def test_listed_without_import() -> None:
    """The entry point makes the backend known; nobody imports zefuse."""
    code = (
        "import sys, torch._dynamo as d; assert 'zefuse' in d.list_backends(); "
        "assert not [m for m in sys.modules if m.startswith('zefuse')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
