"""results/report.html: what stands on it comes from the records, and a browser can use it without a network."""

import json
import re
import runpy
import time
from argparse import Namespace

import pytest
from helpers import ROOT, browser
from helpers.runs import learnable_texts, python

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.records import store
from varrnn.reproduction.claims import CLAIMS
from varrnn.reproduction.figures import collect
from varrnn.reproduction.quotations import QUOTATIONS
from varrnn.reproduction.report import charts, page
from varrnn.reproduction.report.content import FIGURES, GROUPS, OPEN, collect_content
from varrnn.training import run as training_run

REPORT = runpy.run_path(str(ROOT / "scripts" / "report.py"))["words"].__globals__


@pytest.fixture(scope="module")
def content():
    return collect_content(store.load(), None)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page as `make report` writes it, with the words of a tiny run."""
    folder = tmp_path_factory.mktemp("report")
    config = compose.compose([*learnable_texts(folder), f"run_dir={folder / 'run'}"])
    training_run.run(config)
    options = ("--run", str(folder / "run"), "--words", "20", "--samples", "8", "--out", str(folder / "report.html"))
    done = python("scripts/report.py", *options)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def test_every_claim_is_a_tile_with_its_quotation(content):
    tiles = {tile["id"]: tile for tile in content["claims"]}
    assert tiles.keys() == {claim.id for claim in CLAIMS}
    assert {tile["group"] for tile in tiles.values()} <= {*GROUPS.values(), OPEN}
    assert not [tile["id"] for tile in tiles.values() if not (tile["quotation"] or tile["ours"])]
    assert not QUOTATIONS.keys() - tiles.keys()
    assert all(tile["rule"] and tile["commands"] for tile in tiles.values())


def test_a_curve_of_a_figure_is_that_of_its_record(content):
    figure = next(figure for figure in content["figures"] if figure["name"] == "figure3")
    assert len(content["figures"]) == len(FIGURES)
    panel = next(panel for panel in figure["panels"] if panel["title"].startswith("(a)"))
    curve = next(trace for trace in panel["traces"] if trace["label"].startswith("Naive"))
    words = curve["command"].split()[2:]
    record = (
        store.load().group(tuple(word for word in words if word != "-m" and not word.startswith("seed="))).records[0]
    )
    epochs, values = record.column("train_rmse")
    assert curve["x"] == epochs.tolist() and curve["y"] == pytest.approx(values, rel=1e-4)
    test = next(panel for panel in figure["panels"] if panel["title"].startswith("(b)"))
    assert {line["label"].split()[0] for line in test["lines"]} == {"constant", "ridge"}


def test_bands_of_several_seeds_reach_the_page(records_of):
    from matplotlib.figure import Figure

    from varrnn.reproduction.figures import band

    axes = Figure().subplots()
    curve = store.Curve(*(store.np.array(x) for x in ([1, 2, 3], [3.0, 2.0, 1.5], [0.1, 0.2, 0.3])), 2)
    axes.plot(curve.epochs, curve.mean, color="#0072b2", label="a curve", gid="python run.py")
    band(axes, curve, "#0072b2")
    (trace,) = charts.from_axes(axes)["traces"]
    assert trace["low"] == [2.9, 1.8, 1.2] and trace["high"] == [3.1, 2.2, 1.8]
    assert trace["command"] == "python run.py" and not trace["missing"]


def test_figures_are_collected_instead_of_saved(tmp_path):
    from varrnn.reproduction.artefact import experiment

    with collect() as figures:
        written = experiment("figure3").ARTEFACT.draw(store.load(), tmp_path)
    assert written == [] and len(figures) == 1 and not list(tmp_path.iterdir())


def test_the_command_of_a_curve_starts_the_recorded_run(content):
    """Composing it gives the identity of the record."""
    from varrnn.config.identity import identify, matches

    small = next(chart for chart in content["curves"] if "small" in chart["title"])
    records = store.load()
    for trace in (trace for trace in small["traces"] if not trace["missing"]):
        wanted = identify(overrides(trace["command"]))
        assert any(matches(record.identity, wanted) for record in records.runs), trace["command"]


def test_words_that_look_like_markup_stay_words(content):
    text = page.render({**content, "summary": "</script><script>alert(1)</script>"}, library="")
    assert "<script>alert(1)" not in text
    saved = re.search(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)
    assert json.loads(saved[1])["summary"].startswith("</script>")


def test_a_text_needs_a_trained_model(tmp_path, monkeypatch):
    monkeypatch.setitem(REPORT, "find_weights", lambda: None)
    options = Namespace(run=None, text=tmp_path / "a.txt", words=20, samples=5)
    with pytest.raises(UserError, match="--text needs a trained model: give --run RUN_DIR"):
        REPORT["words"](options)
    assert REPORT["words"](Namespace(run=None, text=None)) is None


def test_mistakes_get_one_line(tmp_path):
    done = python("scripts/report.py", "--run", str(tmp_path), "--out", str(tmp_path / "x.html"))
    assert done.returncode == 1 and done.stderr == f"error: {tmp_path}: not a run's folder (no config.yaml in it)\n"
    done = python("scripts/report.py", "--samples", "0")
    assert done.returncode == 1 and done.stderr == "error: --samples 0: must be at least 1\n"


@pytest.mark.skipif(bool(browser.missing()), reason=f"needs a browser: {browser.missing()}")
def test_a_browser_uses_the_page_without_a_network(written, tmp_path):
    with browser.chromium() as driver:
        browser.resize(driver, 1200, 900, "light")
        driver.get(f"file://{written}")
        find = driver.find_element
        assert driver.execute_script("return document.documentElement.dataset.theme") == "light"
        # a tile opens to its quotation, and closes
        find("id", "tile-C27").click()
        detail = find("id", "detail").text
        assert QUOTATIONS["C27"] in detail and "Our numbers" in detail and "python run.py" in detail
        find("css selector", "#detail button").click()
        assert not find("id", "detail").is_displayed()
        # a chip hides its tiles
        chips = driver.find_elements("css selector", "#claim-filter button")
        chips[-1].click()
        assert not find("id", "tile-C1").is_displayed() and find("id", "tile-C27").is_displayed()
        # a key hides its curve and shows it again
        driver.execute_script("document.getElementById('curves').scrollIntoView({behavior: 'instant'})")
        plot = "#curves .chart .plot .scatterlayer .trace"
        before = wait(lambda: len(driver.find_elements("css selector", plot)))
        key = find("css selector", "#curves .chart .key[aria-pressed='true']")
        key.click()
        assert wait(lambda: len(driver.find_elements("css selector", plot)) == before - 1)
        assert key.get_attribute("aria-pressed") == "false"
        key.click()
        assert wait(lambda: len(driver.find_elements("css selector", plot)) == before)
        # the words change with the number of samples; the tip has five likely words
        shades = "return [...document.querySelectorAll('#words .w')].map((w) => w.style.getPropertyValue('--v'))"
        many = driver.execute_script(shades)
        one = "const s = document.getElementById('samples'); s.value = 1; s.dispatchEvent(new Event('input'))"
        driver.execute_script(one)
        assert set(driver.execute_script(shades)) == {"", "0.000"}  # one sample has no mutual information
        assert len({shade for shade in many if shade}) > 5
        word = driver.find_elements("css selector", "#words .w")[3]
        driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", word)
        word.click()
        assert len(driver.find_elements("css selector", "#tip table:last-child tr")) == 5
        # dark, and as narrow as a phone: nothing sticks out
        find("id", "theme").click()
        assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
        for width in (390, 820, 1400):
            browser.resize(driver, width, 900, "dark")
            driver.get(f"file://{written}")
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
            assert browser.screenshot(driver, tmp_path / f"report_{width}.png").stat().st_size > 20_000
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
        outside = [url for url in browser.requests(driver) if not url.startswith(("file:", "data:", "blob:"))]
        assert outside == []


def overrides(command):
    """The words behind `python run.py`, without the seeds."""
    return tuple(word for word in command.split()[2:] if word != "-m" and not word.startswith("seed="))


def wait(condition, seconds: float = 20.0):
    """The first true value of a condition."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found
