"""The quantities of the paper's analysis, corrected and as printed.

Pure functions of numbers, and the only home of these formulas: rules take their radii and scales
from here, and transfers their regularisation and bias. In order of dependence:

- :mod:`~headstart.theory.tasks`: how the tasks are spread (Assumption 1);
- :mod:`~headstart.theory.confidence`: how far an estimate may be off (Lemmas 1 to 3);
- :mod:`~headstart.theory.learning`: how far a learned subspace may be off (Lemma 4);
- :mod:`~headstart.theory.regret`: the regret of optimism (Theorem 1);
- :mod:`~headstart.theory.thompson`: the regret of Thompson sampling (Theorem 2).

Symbols: d features, a plane of p directions, q = d − p; n rounds, t tasks; ‖x‖ ≤ 1, ‖θ*‖ ≤ V,
noise R-sub-Gaussian; W = ‖P̂⊥(θ* − θ̄)‖; B_k = λ₁P̂⊥ + λ₂P̂ + Σ x xᵀ. With p = d everything is that
of LinUCB and LinTS (λ = λ₂), with p = 0 that of B-OFUL (λ = λ₁).
"""

from headstart.theory import confidence, learning, regret, tasks, thompson
from headstart.theory.confidence import *
from headstart.theory.learning import *
from headstart.theory.regret import *
from headstart.theory.tasks import *
from headstart.theory.thompson import *

__all__ = sorted(
    name for part in (confidence, learning, regret, tasks, thompson) for name in part.__all__
)
