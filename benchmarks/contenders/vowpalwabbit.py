"""Vowpal Wabbit: action-dependent features, from text that is written beforehand."""

import tempfile
from pathlib import Path

import numpy as np
import vowpalwabbit

COMMON = "--cb_explore_adf --cb_type mtr --noconstant --quiet"
OPTIMISM = "--regcbopt --mellowness 0.001 --cb_min_cost -1 --cb_max_cost 1"  # so that it learns


class ActionDependent:
    """Read a round once, predict, draw an arm, set the label and learn from the same examples."""

    def __init__(self, problem, exploration):
        self.rounds = [
            "\n".join("|a " + " ".join(f"{n}:{x:.7g}" for n, x in enumerate(row)) for row in rows)
            for rows in problem.contexts.tolist()
        ]
        self.model = vowpalwabbit.Workspace(f"{COMMON} {exploration}")
        self.rng = np.random.default_rng(problem.seed)

    def choose(self, t):
        self.examples = self.model.parse(self.rounds[t])
        self.chances = self.model.predict(self.examples)
        steps = np.cumsum(self.chances)
        return min(int(np.searchsorted(steps, self.rng.random() * steps[-1])), len(steps) - 1)

    def learn(self, t, arm, reward):
        self.examples[arm].set_label_string(f"0:{-reward}:{self.chances[arm]}")
        self.model.learn(self.examples)
        self.model.finish_example(self.examples)

    def sizes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self.model.save(str(path))
            return {"model, saved": path.stat().st_size}


VARIANTS = {
    "squarecb": lambda problem: ActionDependent(problem, "--squarecb"),
    "regcb": lambda problem: ActionDependent(problem, OPTIMISM),
    "epsilon": lambda problem: ActionDependent(problem, "--epsilon 0.1"),
}
