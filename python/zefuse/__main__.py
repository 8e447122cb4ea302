import sys

from zefuse.cli import main

sys.exit(main())
