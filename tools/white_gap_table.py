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

DIMS = [*range(2, 13), 14, 16, 18, 20, 24, 28, 30, 32, 40, 48, 64, 96, 128, 192, 256]
COUNTS = [*range(3, 21), 22, 24, 26, 28, 30, 32, 34, 37, 40, 44, 48, 56, 68, 80, 96, 112, 136, 160]
COUNTS += [192, 224, 272, 320, 400, 512, 640, 832, 1024, 1448, 2048, 4096]
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
        rows.append([quantile(dim, count, draws, rng) for count in COUNTS])
        print(f"dim {dim} done", file=sys.stderr, flush=True)
    with TARGET.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dim", *COUNTS])
        for dim, row in zip(DIMS, rows, strict=True):
            writer.writerow([dim, *(f"{value:.5f}" for value in row)])


if __name__ == "__main__":
    main()
