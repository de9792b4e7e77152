"""`python -m attention_apps` is `attention-apps`."""

import sys

from attention_apps.cli import main

sys.exit(main())
