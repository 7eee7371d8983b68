"""The usual sizes of features, and which values are refused as far out of range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headstart.errors import InputError
from headstart.features.conversion import Features
from headstart.model.evidence import Evidence
from headstart.records import Array

MIN_COUNT = 8  # values from which the usual size of a feature is estimated
MIN_COUNT_TO_REFUSE = 3  # values before which none is refused
MAX_RATIO = 1e6  # of a value and the usual size
STEADY_RATIO = 10.0  # of sizes that hardly change
MIN_SIZE = 1e-20  # of a value that is not taken for zero
ROUNDING = 1e-14  # of the distance and the size of equal values
SAMPLE_ROWS = 4096  # of a fit, about, from which the usual distance is estimated


class FarOutError(InputError):
    """A value that is too large compared with the usual ones of its feature.

    Attributes
    ----------
    row
        The row that holds it.
    in_row
        The message about that row alone.
    """

    row: int = 0
    in_row: str = ""


class UsualSizes(NamedTuple):
    """The usual size of each feature's values, and their usual distance from the first ones.

    Both are geometric means over the values that are not zero, on which outliers have little
    influence: a value below a millionth of the usual size counts as that. A Gram matrix holds
    values up to a million times the usual ones without losing the latter to rounding; larger values
    are refused.

    Attributes
    ----------
    counts, log_sums
        The number of values and the sum of the logarithms of their sizes (first row) and of their
        distances from ``origin`` (second row), shape ``(2, context_dim)``.
    origin
        The mean of the first contexts.
    """

    counts: Array
    log_sums: Array
    origin: Array

    @classmethod
    def zero(cls, dim: int) -> UsualSizes:
        """The sizes before any context."""
        return cls(np.zeros((2, dim)), np.zeros((2, dim)), np.zeros(dim))

    @classmethod
    def of_fit(cls, features: Features, pooled: Evidence) -> UsualSizes:
        """The sizes after a fit, from the mean and the standard deviation of each feature.

        They count like the fewest values that determine a size, so that rounds soon outweigh them.

        Parameters
        ----------
        features
            The features with the units of the fit, if they were standardized.
        pooled
            The sums of all rows, in these units.

        Examples
        --------
        >>> contexts = np.array([[3.0, 0.0], [5.0, 0.0]])
        >>> sizes = UsualSizes.of_fit(Features(2), Evidence.of(contexts, [1.0, 1.0]))
        >>> sizes.counts[0], sizes.means[0].round(2)
        (array([8., 0.]), array([4.12, 1.  ]))
        """
        dim = features.context_dim
        square = np.diag(pooled.gram)[:dim]
        present = square > 0
        units = features.units
        if units is not None:
            origin, deviation = units
        elif features.intercept and pooled.gram[-1, -1] > 0:
            origin = pooled.gram[-1, :dim] / pooled.gram[-1, -1]
            deviation = np.sqrt(np.maximum(square / pooled.gram[-1, -1] - origin**2, 0.0))
        else:
            origin = np.zeros(dim)
            deviation = np.sqrt(square / max(float(pooled.rounds), 1e-300))
        size = np.where(present, np.stack([np.hypot(origin, deviation), deviation]), 0.0)
        # A distance that is rounding determines no size.
        is_known = size > 1e-6 * size[0]
        counts = MIN_COUNT * is_known.astype(np.float64)
        return cls(counts, counts * np.log(np.where(is_known, size, 1.0)), origin * present)

    def update(self, contexts: Array, features: Features) -> UsualSizes:
        """The sizes after some more contexts, which are refused if a value is far out.

        >>> sizes = UsualSizes.zero(1).update(np.ones((3, 1)), Features(1))
        >>> sizes.update(np.array([[1e9]]), Features(1))
        Traceback (most recent call last):
          ...
        headstart.features.usual_sizes.FarOutError: contexts must be within a million times ...
        """
        before = self.with_origin(contexts)
        size = np.empty((len(contexts), *self.counts.shape))
        size[:, 0] = contexts
        np.subtract(contexts, before.origin, out=size[:, 1])
        np.abs(size, out=size)
        present = size > MIN_SIZE
        # The mean of equal values may differ from them by rounding.
        present[:, 1] &= size[:, 1] > ROUNDING * np.abs(before.origin)
        has_size = before.counts >= MIN_COUNT
        least = np.where(has_size, before.means / MAX_RATIO, 0.0)
        log_sums = before.log_sums + np.log(np.where(present, np.maximum(size, least), 1.0)).sum(0)
        counts = before.counts + present.sum(0)
        # Features with few values so far are measured by these contexts as well. From one or two
        # values it is unknown whether they are large or the others are small.
        if has_size.all():
            usual = before.means
        else:
            divisor = np.maximum(np.where(has_size, before.counts, counts), 1)
            usual = np.exp(np.where(has_size, before.log_sums, log_sums) / divisor)
        if (size <= MAX_RATIO * usual).all():
            return UsualSizes(counts, log_sums, before.origin)
        refusable = before.counts >= MIN_COUNT_TO_REFUSE
        large, away = ((size > MAX_RATIO * usual) & refusable).swapaxes(0, 1)
        # A time stamp may move far from where it began, as long as its size hardly changes.
        far = large | (away & (size[:, 0] > STEADY_RATIO * usual[0]))
        if far.any():
            row, column = np.argwhere(far)[0]
            want, got = "within a million times the usual size", f"{contexts[row, column]:g}"
            about = "where values are about {:.3g} in size, and {:.3g} apart".format(
                *usual[:, column]
            )
            label = features.column_label(int(column))
            error = FarOutError(
                f"contexts must be {want} of their feature; got {got} at row {row}, column "
                f"{label}, {about}"
            )
            error.row = int(row)
            error.in_row = f"column {label} must be {want} of its values; got {got}, {about}"
            raise error
        return UsualSizes(counts, log_sums, before.origin)

    def with_origin(self, contexts: Array) -> UsualSizes:
        """The same with another origin, where there is none or it was far out itself."""
        if not self.counts.any():
            return self._replace(origin=contexts.mean(0))
        limit = STEADY_RATIO * self.means[0]
        astray = np.abs(self.origin) > limit
        if not astray.any():
            return self
        mean = contexts.mean(0)
        astray &= (self.counts[0] >= MIN_COUNT) & (np.abs(mean) <= limit)
        if not astray.any():
            return self
        keep = np.stack([np.ones_like(astray), ~astray])
        origin = np.where(astray, mean, self.origin)
        return UsualSizes(self.counts * keep, self.log_sums * keep, origin)

    @property
    def means(self) -> Array:
        """The geometric means of sizes and of distances, 1 where there is no value."""
        return np.exp(self.log_sums / np.maximum(self.counts, 1))

    def usual(self, features: Features) -> Array:
        """The usual sizes of the features that the model sees; infinite where they are unknown."""
        if features.scale is not None:
            return np.ones(features.dim)
        size = np.full(features.dim, np.inf)
        size[: features.context_dim] = np.where(self.counts[0] >= MIN_COUNT, self.means[0], np.inf)
        return size

    @property
    def are_known(self) -> bool:
        """Whether every feature has had enough values to estimate its size."""
        return bool(self.counts.min() >= MIN_COUNT)

    @property
    def limits(self) -> Array:
        """The size up to which a value of each feature is accepted, whatever the other values."""
        has_size, usual = self.counts >= MIN_COUNT, self.means
        if has_size.all():
            return MAX_RATIO * usual.min(0)
        steady = has_size[0] * STEADY_RATIO * usual[0]  # the distances from the origin are unknown
        return np.where(has_size.all(0), MAX_RATIO * usual.min(0), steady)


def refuse_far_rows(table: Array, features: Features) -> None:
    """Refuse rows to fit that have a value a million times farther from the median than is usual.

    The sums of a fit would lose what the other rows say of that feature.

    >>> table = np.append(np.arange(20.0), 1e9)[:, None]
    >>> refuse_far_rows(table, Features(1, ("age",)))
    Traceback (most recent call last):
      ...
    headstart.features.usual_sizes.FarOutError: column 0 ('age') must be within a million times ...
    """
    sample = table[:: max(1, len(table) // SAMPLE_ROWS)]
    for column in range(table.shape[1]):
        values = table[:, column]
        middle, usual = typical_distance(sample[:, column])
        if np.isnan(usual) and len(sample) < len(values):  # it hardly varies
            middle, usual = typical_distance(values)
        ends = int(values.argmin()), int(values.argmax())
        row = max(ends, key=lambda at: abs(values[at] - middle))
        if abs(values[row] - middle) > MAX_RATIO * usual:
            label = features.column_label(column)
            error = FarOutError(
                f"column {label} must be within a million times the usual distance ({usual:.3g}) "
                f"from its median ({middle:.3g}); got {values[row]:g} in row {row}: repair the "
                f"row, or leave it out"
            )
            error.row = row
            raise error


def typical_distance(values: Array) -> tuple[float, float]:
    """The median, and the median distance from it of the values that differ from it.

    NaN where fewer than :data:`MIN_COUNT` differ.
    """
    middle = float(np.median(values))
    away = np.abs(values - middle)
    away = away[away > max(MIN_SIZE, ROUNDING * abs(middle))]
    return middle, float(np.median(away)) if len(away) >= MIN_COUNT else np.nan
