"""The quantities of the paper's analysis, corrected and as printed.

Pure functions of numbers, and the only home of these formulas: rules take their radii and scales
from here, and transfers their regularisation and bias. In order of dependence:

- :mod:`~headstart.theory.tasks`: how the tasks are spread (Assumption 1);
- :mod:`~headstart.theory.confidence`: how far an estimate may be off (Lemmas 1 to 3);
- :mod:`~headstart.theory.learning`: how far a learned subspace may be off (Lemma 4);
- :mod:`~headstart.theory.regret`: what optimism costs (Theorem 1);
- :mod:`~headstart.theory.thompson`: what Thompson sampling costs (Theorem 2).

Symbols: d features, a plane of p directions, q = d − p; n rounds, t tasks; ‖x‖ ≤ 1, ‖θ*‖ ≤ V,
noise R-sub-Gaussian; W = ‖P̂⊥(θ* − θ̄)‖; B_k = λ₁P̂⊥ + λ₂P̂ + Σ x xᵀ. With p = d everything is that
of LinUCB and LinTS (λ = λ₂), with p = 0 that of B-OFUL (λ = λ₁).
"""

from headstart.theory.confidence import (
    bias_radius,
    bias_term,
    confidence_radius,
    elliptical_bound,
    information_bound,
    noise_radius,
    radius_with_bias,
)
from headstart.theory.learning import (
    bernstein_covariance_error,
    covariance_error,
    gram_eigenvalue,
    learned_residual,
    mean_error,
    plane_error,
    projection_error,
    ridge_error,
)
from headstart.theory.regret import (
    estimation_ridge,
    inner_regularisation,
    outer_regularisation,
    regularisation,
    ucb_regret_bound,
    ucb_regret_rate,
)
from headstart.theory.tasks import (
    Variances,
    perfect_projection_ratio,
    sample_variances,
    task_variances,
)
from headstart.theory.thompson import (
    anti_concentration,
    draw_radius,
    printed_anti_concentration,
    thompson_radius,
    thompson_regret_bound,
    thompson_regret_rate,
    thompson_scale,
)

__all__ = [
    "Variances",
    "anti_concentration",
    "bernstein_covariance_error",
    "bias_radius",
    "bias_term",
    "confidence_radius",
    "covariance_error",
    "draw_radius",
    "elliptical_bound",
    "estimation_ridge",
    "gram_eigenvalue",
    "information_bound",
    "inner_regularisation",
    "learned_residual",
    "mean_error",
    "noise_radius",
    "outer_regularisation",
    "perfect_projection_ratio",
    "plane_error",
    "printed_anti_concentration",
    "projection_error",
    "radius_with_bias",
    "regularisation",
    "ridge_error",
    "sample_variances",
    "task_variances",
    "thompson_radius",
    "thompson_regret_bound",
    "thompson_regret_rate",
    "thompson_scale",
    "ucb_regret_bound",
    "ucb_regret_rate",
]
