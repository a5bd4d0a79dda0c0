"""Figures, colours and labels that all plots share. Only this package imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.domain.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Okabe and Ito (2008): distinguishable with colour blindness, and in print.
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
GREY, RED = "#8A8A8A", "#C1272D"
_SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH_INCHES, _DOTS_PER_INCH = 9.0, 120
# Candidate positions of a label: right and up from its point, in points, and its alignment.
_LABEL_OFFSETS = ((7, 6, "left"), (-7, 6, "right"), (7, -14, "left"), (-7, -14, "right"))


def require_plots(path: Path) -> None:
    """Check that a plot can be written to this file; call it before any long work.

    Raises:
        SpecError: the suffix is unknown, or the folder or matplotlib is missing.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise SpecError(f"{path}: name it .png, .svg or .pdf", "--plot")
    if not path.absolute().parent.is_dir():
        raise SpecError(f"{path} can't be written: its folder is missing", "--plot")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise SpecError(
            "plots need matplotlib: pip install 'castor-autoscaler[plot]'", "--plot"
        ) from None


def new_figure(height_inches: float) -> Figure:
    """Return an empty figure of this height, with the style of all plots."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#E6E6E6",
            "axes.axisbelow": True,
            "legend.frameon": False,
            "svg.hashsalt": "castor",
            "text.parse_math": False,
        }
    )
    return Figure(figsize=(_WIDTH_INCHES, height_inches), dpi=_DOTS_PER_INCH, layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file.

    Raises:
        SpecError: the file can't be written.
    """
    try:
        figure.savefig(path)
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}", "--plot") from None


def colour(index: int) -> str:
    """Return the colour of a series; colours repeat after 8."""
    return COLOURS[index % len(COLOURS)]


def legend_below(axes: Axes, columns: int = 4) -> None:
    """Add a legend below a chart."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, fontsize=9)


def label_points(axes: Axes, points: Sequence[tuple[float, float]], words: Sequence[str]) -> None:
    """Label points without overlaps; earlier points have priority, and some may get no label.

    Args:
        axes: the chart.
        points: horizontal and vertical position of each point, in data coordinates.
        words: label of each point.
    """
    axes.get_figure(root=True).draw_without_rendering()  # type: ignore[union-attr]
    inside = axes.get_window_extent()
    placed: list[Bbox] = []
    for point, word in zip(points, words, strict=True):
        for right, up, align in _LABEL_OFFSETS:
            note = axes.annotate(
                word,
                point,
                (right, up),
                textcoords="offset points",
                ha=align,
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
            )
            box = note.get_window_extent()
            fits = (
                inside.x0 <= box.x0
                and box.x1 <= inside.x1
                and inside.y0 <= box.y0
                and box.y1 <= inside.y1
            )
            if fits and not any(box.overlaps(other) for other in placed):
                placed.append(box)
                break
            note.remove()
