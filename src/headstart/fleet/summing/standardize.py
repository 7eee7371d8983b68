"""Units for features (:mod:`headstart.transfer.standardize`), changed by compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.fleet.summing.loops import compiled
from headstart.transfer import standardize
from headstart.transfer.standardize import STEADY

__all__ = ["STEADY", "Units"]


class Units(standardize.Units):
    """Where every feature begins, and its unit."""

    def packed(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Packed evidence in these units, a row for each task; the rows are changed in place."""
        loops = compiled(0)  # if they are loaded already
        if loops is None:
            return super().packed(rows)
        own = 0 if self.constant is None else self.constant
        places = self.constant_places()
        loops.change_units(rows, places, own, self.shift, 1.0 / self.scale)
        return rows
