"""The page of coloured words."""

import re

import torch
from matplotlib.colors import to_hex

from varrnn.analysis.uncertainty_plots import COLOURS, write_words_html
from varrnn.analysis.word_uncertainty import WordUncertainty


def test_the_legend_ends_in_the_darkest_colour(tmp_path):
    values = torch.linspace(0, 2, 50)
    write_words_html(["w"] * 51, WordUncertainty(*[values] * 7), tmp_path / "words.html", "title")
    heading = (tmp_path / "words.html").read_text().split("<h2>")[1].split("</h2>")[0]
    shown = re.findall(r"background:(#\w+);color:(\w+)\">([\d.]+)<", heading)
    assert [colour for colour, _, _ in shown] == [to_hex(COLOURS(x)) for x in (0.0, 0.25, 0.5, 0.75, 1.0)]
    numbers = [float(number) for _, _, number in shown]
    assert numbers == sorted(numbers) and numbers[0] == 0 and shown[-1][1] == "white"
