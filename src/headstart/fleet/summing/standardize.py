"""Units of features (:mod:`headstart.transfer.standardize`), changed by compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.fleet.summing.grams import TABLES, Packed
from headstart.kernels.forms import Kernel
from headstart.records import Array
from headstart.transfer import standardize
from headstart.transfer.standardize import STEADY

__all__ = ["STANDARDIZE_ROWS", "STEADY", "Units"]


def standardize_rows(
    packed: Packed, across: npt.NDArray[np.int64], constant: int, shift: Array, scale: Array
) -> None:
    """Change the units of packed evidence, in place.

    Parameters
    ----------
    packed
        A row for each task.
    across
        Where the products of each feature with the constant one are.
    constant
        Which feature is constant; any if the shift is 0.
    shift, scale
        What is subtracted from each feature, times the constant one, and what it is divided by.
    """
    standardize.Units(shift, scale, constant).packed(packed)


STANDARDIZE_ROWS = Kernel(standardize_rows, TABLES)


class Units(standardize.Units):
    """Where every feature begins, and its unit."""

    def packed(self, rows: Packed) -> Packed:
        """Packed evidence in these units, a row for each task; the rows are changed in place."""
        constant = 0 if self.constant is None else self.constant
        change = STANDARDIZE_ROWS.form(len(rows))
        change(rows, self.constant_places(), constant, self.shift, self.scale)
        return rows
