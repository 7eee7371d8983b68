"""Tasks around a plane: the paper's first figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from headstart import checks
from headstart.algorithms import DEFAULT
from headstart.errors import InputError
from headstart.lab.figures.elements.base import SINGLE, Figure, plotly_layout
from headstart.lab.figures.elements.styles import KNOWN_STYLES
from headstart.lab.text import count, number
from headstart.records import Array
from headstart.worlds.base import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

POINTS = KNOWN_STYLES["P-LinUCB"].colour
PLANE = KNOWN_STYLES["projection oracle"].colour
ARROW = KNOWN_STYLES[DEFAULT].colour
AXES = ("θ₁", "θ₂", "θ₃")


class Scene(NamedTuple):
    """Points, the corners of the true plane's patch, and the direction of least variance."""

    points: Array
    corners: Array
    centre: Array
    tip: Array


def scatter(world: World, seed: int = 0, tasks: int = 200, name: str = "scatter") -> Figure:
    """Task parameters around a plane in three dimensions.

    Parameters
    ----------
    world
        A world of dimension 3 with a plane, such as ``Synthetic(dim=3, rank=2)``.
    seed, tasks
        Which population, and how many of its tasks.
    name
        The stem of its files.
    """
    checks.integer("tasks", tasks, 4)
    population = world.population(seed)
    truth = population.truth
    if population.dim != 3 or truth is None or truth.basis is None or truth.basis.shape[1] != 2:
        raise InputError(f"world must have 3 dimensions and a plane in them; got {world!r}")
    parameters = [population.episode(task, 1).theta for task in range(tasks)]
    thetas = np.stack([theta for theta in parameters if theta is not None])
    normal = np.linalg.svd(truth.basis)[0][:, 2]
    values, vectors = np.linalg.eigh(np.cov(thetas.T))
    angle = float(np.degrees(np.arccos(min(1.0, abs(float(normal @ vectors[:, 0]))))))
    scene = make_scene(thetas, truth.mean, truth.basis, vectors[:, 0])
    table = pl.DataFrame({"task": range(1, tasks + 1)} | dict(zip(AXES, thetas.T, strict=True)))
    brief = pl.DataFrame(
        {
            "direction": ["1st", "2nd", "3rd (least variance)"],
            "standard deviation": [number(float(value) ** 0.5) for value in values[::-1]],
        }
    )
    return Figure(
        name,
        "Task parameters around a plane",
        f"Parameters of {count(tasks, 'task')} of one population (seed {seed}), the true plane, "
        f"and the direction in which these tasks vary least, {angle:.1f}° from the plane's normal. "
        "A single draw: no intervals.",
        table,
        brief,
        lambda: draw(scene),
        lambda: explore(scene),
    )


def make_scene(points: Array, mean: Array, basis: Array, least: Array) -> Scene:
    """The points, a patch of the plane that covers them, and the direction of least variance."""
    inside = (points - mean) @ basis
    low, high = inside.min(0), inside.max(0)
    pad = 0.08 * (high - low)
    low, high = low - pad, high + pad
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    # Upwards along the axis that it is nearest to, which the drawings stand upright.
    up = least * np.sign(least[np.abs(least).argmax()])
    centre = points.mean(0)
    return Scene(points, mean + corners @ basis.T, centre, centre + up * 0.32 * np.ptp(points))


def draw(scene: Scene) -> Drawing:
    """In perspective, the plane seen from above at a slant."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    drawing = Drawing(figsize=(SINGLE, 2.8))
    axes: Any = drawing.add_axes((0.02, 0.1, 0.9, 0.92), projection="3d")
    axes.computed_zorder = False
    # Points below the plane first, so that it lies over them.
    up = scene.tip - scene.centre
    above = (scene.points - scene.corners[0]) @ up > 0
    for part, order in ((~above, 1), (above, 3)):
        axes.scatter(*scene.points[part].T, s=7, color=POINTS, linewidth=0, zorder=order, alpha=0.9)
    patch = Poly3DCollection([scene.corners], facecolor=PLANE, edgecolor=PLANE, alpha=0.35)
    patch.set_zorder(2)
    axes.add_collection3d(patch)
    axes.quiver(*scene.centre, *up, color=ARROW, linewidth=1.6, arrow_length_ratio=0.18, zorder=4)
    all_points = np.concatenate([scene.points, scene.corners, scene.tip[None]])
    low, high = all_points.min(0), all_points.max(0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    upright, elevation, azimuth = camera_angles(up)
    axes.view_init(elev=elevation, azim=azimuth, vertical_axis="xyz"[upright])
    axes.set_box_aspect(high - low, zoom=0.98)  # after view_init, which says which axis is which
    for axis, label in zip((axes.xaxis, axes.yaxis, axes.zaxis), AXES, strict=True):
        axis.set_label_text(label)
        axis.set_pane_color((1, 1, 1, 0))
        axis.set_major_locator(MaxNLocator(4))
        axis.labelpad = -2.5 if axis.axis_name == "xyz"[upright] else -4.5
        axis._axinfo["grid"].update(color="0.9", linewidth=0.4)
    axes.tick_params(labelsize=7, pad=-2)
    drawing.legend(
        [
            Line2D([], [], color=POINTS, marker="o", linewidth=0, markersize=3),
            Patch(facecolor=PLANE, edgecolor=PLANE, alpha=0.35),
            Line2D([], [], color=ARROW, linewidth=1.6),
        ],
        ["tasks", "true plane", "direction of least variance"],
        loc="lower center",
        ncols=3,
        columnspacing=1.2,
        handlelength=1.6,
    )
    return drawing


def camera_angles(normal: Array) -> tuple[int, float, float]:
    """The axis to stand upright, and the elevation and azimuth of the eye, in degrees.

    The upright axis is the one nearest to the plane's normal. The eye is where the plane is neither
    face on nor edge on: about 60° from its normal, which leans to the side.
    """
    upright = int(np.abs(normal).argmax())
    unit = np.roll(normal / np.linalg.norm(normal), 2 - upright)
    azimuth = float(np.degrees(np.arctan2(unit[1], unit[0]))) - 65.0
    target = np.cos(np.radians(60.0))
    elevations = np.arange(12.0, 46.0)
    errors = [abs(float(direction(elevation, azimuth) @ unit) - target) for elevation in elevations]
    return upright, float(elevations[int(np.argmin(errors))]), azimuth


def direction(elevation: float, azimuth: float) -> Array:
    """The unit vector towards the eye, the upright axis last."""
    up, around = np.radians(elevation), np.radians(azimuth)
    return np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])


def explore(scene: Scene) -> Any:
    """The interactive plot."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter3d(
        **by_axis(scene.points.T),
        mode="markers",
        name="tasks",
        marker={"size": 3, "color": POINTS},
        hovertemplate="task %{pointNumber}<br>%{x:.3f}, %{y:.3f}, %{z:.3f}<extra></extra>",
    )
    figure.add_mesh3d(
        **by_axis(scene.corners.T),
        i=[0, 0],
        j=[1, 2],
        k=[2, 3],
        color=PLANE,
        opacity=0.35,
        name="true plane",
        showlegend=True,
        hoverinfo="skip",
    )
    figure.add_scatter3d(
        **by_axis(np.stack([scene.centre, scene.tip]).T),
        mode="lines+markers",
        name="direction of least variance",
        line={"color": ARROW, "width": 6},
        marker={"size": [0, 5], "color": ARROW, "symbol": "diamond"},
        hoverinfo="skip",
    )
    axes = {
        f"{letter}axis": {"title": label, "nticks": 5, "zeroline": False, "showspikes": False}
        for letter, label in by_axis(AXES).items()
    }
    upright, elevation, azimuth = camera_angles(scene.tip - scene.centre)
    eye = 2.3 * np.roll(direction(elevation, azimuth), upright - 2)
    up = np.roll([0, 0, 1], upright - 2)
    # A little below the middle: the axes' labels need room.
    camera = {
        name: by_axis(place.tolist())
        for name, place in (("eye", eye), ("up", up), ("center", -0.1 * up))
    }
    figure.update_layout(
        **plotly_layout(height=520, margin={"l": 0, "r": 0, "t": 10, "b": 30}),
        scene={**axes, "aspectmode": "data", "camera": camera},
    )
    figure.update_layout(legend={"y": 0})
    return figure


def by_axis(values: Any) -> dict[str, Any]:
    """Three values by the names of the axes."""
    return dict(zip("xyz", values, strict=True))
