"""Maps a drawing's colours to CSS variables, so that one SVG serves a light page and a dark one.

    #0072b2 ─▶ var(--c-0072b2, #0072b2) ─▶ style(html): --c-0072b2 for both schemes; a dark page has a lighter one
    ink, grid, paper ─▶ the page's own variables

The fallback serves an SVG that is saved from the page. Every colour has enough contrast for text on its paper.

Next: latency.py.
"""

import re

INK, MUTED, GRID, PAPER = "#1c2530", "#55606d", "#dde2e8", "#ffffff"
_DARK_PAPER = "#1a2027"
_PAGE = {INK: "ink", MUTED: "muted", GRID: "line", PAPER: "card"}
_CONTRAST = 4.6
"""WCAG 2 asks for 4.5 at level AA."""
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_USED = re.compile(r"var\(--c-([0-9a-f]{6}),")


def variables(svg: str) -> str:
    """Returns the SVG with its colours as CSS variables."""
    return _COLOR.sub(lambda found: variable(found[0]), svg)


def variable(color: str) -> str:
    return f"var(--{_PAGE.get(color, f'c-{color[1:]}')}, {color})"


def style(html: str) -> str:
    """Returns CSS that defines the variables that the page uses."""
    used = sorted({f"#{color}" for color in _USED.findall(html)})
    light = " ".join(f"--c-{color[1:]}: {color};" for color in used)
    dark = " ".join(f"--c-{color[1:]}: {readable(color, _DARK_PAPER)};" for color in used)
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def readable(color: str, paper: str) -> str:
    """Returns the colour, moved toward black or white until text of it is legible on the paper."""
    target = (0, 0, 0) if _luminance(_rgb(paper)) > 0.5 else (255, 255, 255)
    rgb = _rgb(color)
    for step in range(21):
        mixed = tuple(round(c + (t - c) * step / 20) for c, t in zip(rgb, target, strict=True))
        if contrast(mixed, _rgb(paper)) >= _CONTRAST:
            break
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Returns the contrast of two colours as WCAG 2 defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(int(color[n : n + 2], 16) for n in (1, 3, 5))


def _luminance(rgb: tuple[int, ...]) -> float:
    linear = (
        c / 12.92 if (c := value / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for value in rgb
    )
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
