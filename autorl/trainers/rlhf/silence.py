"""Tells transformers to print nothing but errors.

It holds for the process that imports this module.
"""

from __future__ import annotations

import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
