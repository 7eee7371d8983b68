"""Open Bandit Pipeline: its LinUCB and LinTS, with a model for each arm."""

import pickle

from obp.policy import LinTS, LinUCB
from problem import NOISE


class ForEachArm:
    """A model for each arm, all of which see one context."""

    def __init__(self, problem, kind, **exploration):
        self.contexts = problem.contexts[:, :1]
        self.policy = kind(
            dim=problem.dim, n_actions=problem.arms, random_state=problem.seed, **exploration
        )

    def choose(self, t):
        return int(self.policy.select_action(self.contexts[t])[0])

    def learn(self, t, arm, reward):
        self.policy.update_params(arm, reward, self.contexts[t])

    def sizes(self):
        return {"policy, pickled": len(pickle.dumps(self.policy))}


VARIANTS = {
    "ucb": lambda problem: ForEachArm(problem, LinUCB, epsilon=NOISE),
    "thompson": lambda problem: ForEachArm(problem, LinTS),
}
