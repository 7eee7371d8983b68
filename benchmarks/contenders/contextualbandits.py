"""contextualbandits: its compiled regression as one model for all arms, and its policies."""

import pickle

import numpy as np
from contextualbandits.linreg import LinearRegression
from contextualbandits.online import LinTS, LinUCB
from problem import NOISE, RIDGE


class Regression:
    """The building block: exact, by rank-one updates."""

    def __init__(self, problem, **settings):
        self.contexts = problem.contexts
        self.rng = np.random.default_rng(problem.seed)
        self.model = LinearRegression(
            lambda_=RIDGE, fit_intercept=False, method="sm", use_float=False, **settings
        )
        self.model.partial_fit(np.zeros((1, problem.dim)), np.zeros(1))

    def learn(self, t, arm, reward):
        self.model.partial_fit(self.contexts[t, arm : arm + 1], np.array([reward]))

    def sizes(self):
        return {"regression, pickled": len(pickle.dumps(self.model))}


class Optimism(Regression):
    def choose(self, t):
        return int(self.model.predict_ucb(self.contexts[t], NOISE).argmax())


class Thompson(Regression):
    """One draw for all arms, prepared when it learns, as its documentation recommends."""

    def __init__(self, problem):
        super().__init__(problem, precompute_ts=True, precompute_ts_multiplier=NOISE**2)

    def choose(self, t):
        draws = self.model.predict_thompson(self.contexts[t], NOISE**2, False, self.rng)
        return int(draws.argmax())


class ForEachArm:
    """The policies: a model for each arm, all of which see one context."""

    def __init__(self, problem, policy):
        self.contexts = problem.contexts
        self.policy = policy

    def choose(self, t):
        return int(self.policy.predict(self.contexts[t, :1])[0])

    def learn(self, t, arm, reward):
        self.policy.partial_fit(self.contexts[t, :1], np.array([arm]), np.array([reward]))

    def sizes(self):
        return {"policy, pickled": len(pickle.dumps(self.policy))}


def policy(kind, problem, **exploration):
    made = kind(
        problem.arms,
        lambda_=RIDGE,
        fit_intercept=False,
        random_state=problem.seed + 1,  # it refuses 0
        **exploration,
    )
    return ForEachArm(problem, made)


VARIANTS = {
    "regression ucb": Optimism,
    "regression thompson": Thompson,
    "ucb": lambda problem: policy(LinUCB, problem, alpha=NOISE),
    "thompson": lambda problem: policy(LinTS, problem, v_sq=NOISE**2),
}
