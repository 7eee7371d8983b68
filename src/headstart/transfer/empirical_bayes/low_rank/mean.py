"""The mean of a low-rank population, shrunk by as much as it is uncertain.

A priori μ ~ N(0, τ² I + W Wᵀ): about as large in every direction, and larger where tasks differ
most. If μ were shrunk with τ² along W too, W would explain what all tasks have in common. The
intercept of log-odds has a variance of its own: where clicks are rare it is far from 0.
"""

from __future__ import annotations

from headstart.arrays import array_namespace, matvec, transpose
from headstart.records import Array
from headstart.small_matrices import spd_inverse
from headstart.transfer.empirical_bayes.full_covariance.fitting import LEVEL_VARIANCE, mean_variance
from headstart.transfer.empirical_bayes.low_rank.population import LowRank

MIN_SHOWN = 0.1  # tasks that must have shown a direction, about, for it to count in the size of μ
MIN_MEAN_SHARE = 1e-10  # the least τ², as a share of the mean variance of tasks


def mean_step(low: LowRank, known: Array, total: Array, level: bool = False) -> tuple[Array, Array]:
    """C, the covariance of μ's own error, and the step δ of μ, from H = Σ H_i and Σ v_i.

    τ² is the mean square of μ beyond what noise gives it (James and Stein), measured where W does
    not reach: with η = Σ v_i + H μ, the information of tasks on μ, and W's directions integrated
    out ::

        H' = (H⁻¹ + W Wᵀ)⁻¹      η' = H' H⁻¹ η      μ' = J η'      J = (H' + 0.1 I / s²)⁻¹
        τ² = (‖μ'‖² − tr J H' J) / tr J H'

    s² is the mean variance of tasks, so that directions that a tenth of a task has not shown hardly
    count. All others do, however alike tasks are along them. Where the last coefficient is the
    ``level`` of log-odds, it does not, and has the variance ``LEVEL_VARIANCE`` instead of τ².
    """
    xp = array_namespace(low.mean)
    dim, rank = low.loadings.shape[-2:]
    w, eye = low.loadings, xp.eye(dim)
    # H' and η', by Woodbury's identity.
    across = known @ w
    inner = spd_inverse(xp.eye(rank) + transpose(w) @ across)
    outside = known - across @ inner @ transpose(across)
    moment = total + matvec(known, low.mean)
    moment = moment - matvec(across @ inner, matvec(transpose(w), moment))
    spread = (w**2).sum((-2, -1)) / dim + xp.asarray(low.residual)
    raw = spd_inverse(
        (outside + transpose(outside)) / 2 + (MIN_SHOWN / spread)[..., None, None] * eye
    )
    shown = raw @ outside
    estimate, least = matvec(raw, moment), MIN_MEAN_SHARE * spread
    level_variance = LEVEL_VARIANCE / low.scale**2
    variance = mean_variance(estimate, shown @ raw, shown, least, level, level_variance)[..., None]
    # (T + W Wᵀ)⁻¹, the precision that μ is expected to have; T = τ² I without a level.
    scaled = w / variance
    gram = spd_inverse(xp.eye(rank) + transpose(w) @ scaled)
    precision = eye / variance - scaled @ gram @ transpose(scaled)
    error = spd_inverse(known + (precision + transpose(precision)) / 2)
    error = (error + transpose(error)) / 2
    return error, matvec(error, total - matvec(precision, low.mean))
