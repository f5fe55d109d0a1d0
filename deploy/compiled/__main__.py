"""`python -m deploy.compiled`: compiles the core, if there is a compiler; see `build.py`."""

import sys

from deploy.compiled.build import main

sys.exit(main())
