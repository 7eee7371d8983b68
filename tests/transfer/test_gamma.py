"""The gamma function's logarithm and its derivative, beside SciPy's."""

import numpy as np
import pytest
from scipy import special

from headstart.transfer.empirical_bayes.full_covariance.gamma import digamma, log_gamma

X = np.concatenate([np.linspace(0.5, 20.0, 2001), np.geomspace(0.5, 1e12, 2001)])


@pytest.mark.parametrize(
    ("own", "theirs"), [(log_gamma, special.gammaln), (digamma, special.digamma)]
)
def test_it_is_scipys(own, theirs):
    np.testing.assert_allclose(own(X), theirs(X), rtol=2e-14, atol=2e-14)
    np.testing.assert_allclose(own(X.reshape(2, -1, 1)), theirs(X).reshape(2, -1, 1), atol=2e-14)
    assert own(2.5) == pytest.approx(theirs(2.5), rel=1e-14)
