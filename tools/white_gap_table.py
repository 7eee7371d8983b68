"""Make ``src/headstart/subspace/white_gap.csv``: the log gap that pure noise shows.

For ``count`` white Gaussian vectors in ``dim`` dimensions, the largest log gap
``max_p log(σ_p/σ_{p+1})``, ``p ≤ 0.8·min(dim, count−1)``, of their sample covariance exceeds the
tabulated value once in a hundred times. The covariance is never formed: the eigenvalues of a white
Wishart matrix are those of a random bidiagonal matrix times its transpose (Dumitriu and Edelman
2002), which makes a draw cost O(dim²).

Run with ``python tools/white_gap_table.py`` (about ten minutes on one core).
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

DIMS = [*range(2, 17), 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256]
COUNTS = [3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80, 96, 112, 136, 160]
COUNTS += [192, 224, 272, 320, 400, 512, 640, 832, 1024, 1448, 2048, 4096]
NEAR = [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 9]  # counts around the dimension, where the gap peaks
LEVEL = 0.99
SEED = 20240
TARGET = Path(__file__).parents[1] / "src" / "headstart" / "subspace" / "white_gap.csv"


def eigenvalues(dim: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Nonzero eigenvalues, largest first, of a scatter of ``count`` centred white vectors."""
    small, large = sorted((dim, count - 1))
    diagonal = np.sqrt(rng.chisquare(np.arange(large, large - small, -1)))
    below = np.sqrt(rng.chisquare(np.arange(small - 1, 0, -1)))
    squared = diagonal**2
    squared[1:] += below**2
    return eigvalsh_tridiagonal(squared, diagonal[:-1] * below)[::-1]


def quantile(dim: int, count: int, draws: int, rng: np.random.Generator) -> float:
    """The ``LEVEL`` point of the largest admissible log gap."""
    top = int(0.8 * min(dim, count - 1))
    gaps = np.empty(draws)
    for draw in range(draws):
        values = eigenvalues(dim, count, rng)
        values = np.maximum(values, 1e-12 * values[0])
        ratios = -np.diff(np.log(values))
        gaps[draw] = ratios[:top].max()
    return float(np.quantile(gaps, LEVEL))


def main() -> None:
    """Simulate every cell and write the table."""
    rng = np.random.default_rng(SEED)
    rows = []
    for dim in DIMS:
        draws = 4000 if dim <= 64 else 1500
        for count in sorted({*COUNTS, *(dim + near for near in NEAR if dim + near > 2)}):
            rows.append([dim, count, f"{quantile(dim, count, draws, rng):.4f}"])
        print(f"dim {dim} done", file=sys.stderr, flush=True)
    with TARGET.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["dim", "count", "gap"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
