"""Imports what numba looks at before it loads the first compiled program.

The fork server does so once. Environments of Gymnasium are trained in a worker process for each
segment: 0.4 of 0.7 CPU-seconds of a first segment were numba's registries, scipy among them.
"""

from __future__ import annotations

import gc

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
gc.freeze()  # a collection in a child would copy the pages of all that is imported here
