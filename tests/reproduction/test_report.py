"""results/report.html: its content comes from the records, and it works in a browser without a network."""

import json
import re
import runpy
import time
from argparse import Namespace

import pytest
from helpers import ROOT, browser
from helpers import records as synthetic
from helpers.runs import learnable_texts, python

from varrnn.config import compose
from varrnn.config.identity import identity_of, matches
from varrnn.errors import UserError
from varrnn.records import store
from varrnn.reproduction.artefact import experiment
from varrnn.reproduction.claims import CLAIMS
from varrnn.reproduction.figures import collect_figures
from varrnn.reproduction.quotations import QUOTATIONS
from varrnn.reproduction.report import charts, page
from varrnn.reproduction.report.content import FIGURES, GROUPS, OPEN, collect_content
from varrnn.reproduction.runs import figure3
from varrnn.training import run as training_run

REPORT = runpy.run_path(str(ROOT / "scripts" / "report.py"))["words"].__globals__


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of the medium models of Table 1 and of the LSTMs of figure 3, two seeds each."""
    folder = tmp_path_factory.mktemp("report")
    lstm = [synthetic.sentiment_run(run, seed) for run in figure3("lstm").values() for seed in (1, 2)]
    synthetic.save([*synthetic.table1_records("medium", (1, 2)), *lstm], folder / "records")
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return store.load(folder / "records")


@pytest.fixture(scope="module")
def content(records):
    return collect_content(records, None)


@pytest.fixture(scope="module")
def written(folder):
    """The page as `make report` writes it, with the words of a tiny run."""
    config = compose.compose([*learnable_texts(folder), f"run_dir={folder / 'run'}"])
    training_run.run(config)
    words = ("--run", str(folder / "run"), "--words", "20", "--samples", "8")
    files = ("--records", str(folder / "records"), "--out", str(folder / "report.html"))
    done = python("scripts/report.py", *words, *files)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


@pytest.mark.slow
def test_every_claim_is_a_tile_with_its_quotation(content):
    tiles = {tile["id"]: tile for tile in content["claims"]}
    assert tiles.keys() == {claim.id for claim in CLAIMS}
    assert {tile["group"] for tile in tiles.values()} <= {*GROUPS.values(), OPEN}
    assert not [tile["id"] for tile in tiles.values() if not (tile["quotation"] or tile["ours"])]
    assert not QUOTATIONS.keys() - tiles.keys()
    assert all(tile["rule"] and tile["commands"] for tile in tiles.values())


def test_the_filter_counts_the_claims_of_the_summary(content):
    """Additional claims are counted separately, so that both say the same of the paper's claims."""
    total, _, verdicts = content["summary"].partition(" claims: ")
    counts = (part.partition(" (")[0].split(" ", 1) for part in verdicts.split(", "))
    counted = {word: int(number) for number, word in counts}
    assert sum(group["paper"] for group in content["groups"]) == int(total)
    for group in content["groups"]:
        assert group["paper"] == sum(counted.get(word, 0) for word in group["verdicts"])
        tiles = [tile for tile in content["claims"] if tile["group"] == group["name"]]
        assert group["paper"] + group["ours"] == len(tiles) and group["ours"] == sum(tile["ours"] for tile in tiles)
    assert sum(group["ours"] for group in content["groups"]) == sum(claim.is_extra for claim in CLAIMS) > 0


def test_a_curve_of_a_figure_is_that_of_its_records(content, records):
    """Mean and standard deviation over seeds, with the command of the runs behind it."""
    assert [figure["name"] for figure in content["figures"]] == list(FIGURES)
    figure = next(figure for figure in content["figures"] if figure["name"] == "figure3")
    panel = next(panel for panel in figure["panels"] if panel["title"].startswith("(b)"))
    curve = next(trace for trace in panel["traces"] if trace["label"].startswith("Naive"))
    wanted = records.group(overrides(curve["command"])).curve("test_rmse_mc")
    assert wanted.n == 2 and curve["command"].endswith("seed=1,2")
    assert curve["x"] == wanted.epochs.tolist() and curve["y"] == pytest.approx(wanted.mean, rel=1e-4)
    assert curve["low"] == pytest.approx(wanted.mean - wanted.std, rel=1e-4)
    assert curve["high"] == pytest.approx(wanted.mean + wanted.std, rel=1e-4)
    assert {line["label"].split()[0] for line in panel["lines"]} == {"mean", "ridge"}
    assert any("GRU" in title for title in figure["empty"]) and any("cell=gru" in one for one in figure["missing"])


def test_figures_are_collected_instead_of_saved(tmp_path, records):
    with collect_figures() as figures:
        written = experiment("figure3").ARTEFACT.render(records, tmp_path)
    assert written == [] and len(figures) == 1 and not list(tmp_path.iterdir())


def test_learning_curves_are_shown_with_the_published_values(content, records):
    medium = next(chart for chart in content["curves"] if "medium" in chart["title"])
    assert {f"{line['value']:g}" for line in medium["lines"]} >= {"121.1", "86.2", "81.9"}
    for trace in medium["traces"]:
        if not trace.get("hidden") and not trace["missing"]:
            wanted = records.group(overrides(trace["command"])).curve("valid_ppl_authors")
            assert trace["y"] == pytest.approx(wanted.mean, rel=1e-4) and wanted.n == 2
    large = next(chart for chart in content["curves"] if "large" in chart["title"])
    assert all(trace["missing"] and "experiment=ptb_large" in trace["command"] for trace in large["traces"])
    assert content["curves"].index(medium) < content["curves"].index(large)  # what has data comes first


@pytest.mark.slow
def test_the_commands_of_the_committed_curves_start_the_recorded_runs():
    """Composing a command gives the identity of a record, for any dropout rates."""
    records = store.load()
    curves = [trace for chart in charts.learning_curves(records) for trace in chart["traces"]]
    for trace in (trace for trace in curves if not trace["missing"]):
        wanted = identity_of(overrides(trace["command"]))
        assert any(matches(record.identity, wanted) for record in records.runs), trace["command"]


def test_words_that_look_like_markup_are_escaped(content):
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


@pytest.mark.slow
def test_mistakes_get_one_line(tmp_path):
    done = python("scripts/report.py", "--run", str(tmp_path), "--out", str(tmp_path / "x.html"))
    assert done.returncode == 1 and done.stderr.startswith(
        f"error: {tmp_path}: not a run's folder (it has no config.yaml)"
    )
    assert done.stderr.count("\n") == 1
    done = python("scripts/report.py", "--samples", "0")
    assert done.returncode == 1 and done.stderr == "error: --samples 0: must be at least 1\n"


def click(driver, element) -> None:
    """Click in the middle of the window, where the bar at its top does not cover the element."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()


@pytest.mark.slow
@pytest.mark.skipif(bool(browser.missing()), reason=f"needs a browser: {browser.missing()}")
def test_a_browser_uses_the_page_without_a_network(written, tmp_path):
    with browser.chromium() as driver:
        browser.resize(driver, 1200, 900, "light")
        driver.get(f"file://{written}")
        find = driver.find_element
        assert driver.execute_script("return document.documentElement.dataset.theme") == "light"
        # a tile opens to its quotation, and closes
        click(driver, find("id", "tile-C27"))
        detail = find("id", "detail").text
        assert QUOTATIONS["C27"] in detail and "Our numbers" in detail and "python run.py" in detail
        find("css selector", "#detail button").click()
        assert not find("id", "detail").is_displayed()
        # a chip hides its tiles
        chips = driver.find_elements("css selector", "#claim-filter button")
        assert [chip.text.split(",")[0] for chip in chips] == filter_labels(written)
        click(driver, chips[-1])
        assert not find("id", "tile-C37").is_displayed() and find("id", "tile-C27").is_displayed()
        # a key hides its curve and shows it again
        driver.execute_script("document.getElementById('curves').scrollIntoView({behavior: 'instant'})")
        names = "return (document.querySelector('#curves .plot').data || []).map((trace) => trace.name).filter(Boolean)"
        curves = wait(lambda: driver.execute_script(names))
        drawn = "#curves .chart:first-child .scatterlayer .trace"
        before = wait(lambda: len(driver.find_elements("css selector", drawn)))
        key = find("css selector", "#curves .chart .key[aria-pressed='true']")
        assert key.text in curves
        key.click()
        assert driver.execute_script(names) == [name for name in curves if name != key.text]
        assert wait(lambda: len(driver.find_elements("css selector", drawn)) < before)
        assert key.get_attribute("aria-pressed") == "false"
        key.click()
        assert driver.execute_script(names) == curves
        # the words change with the number of samples; the tip has five likely words
        shades = "return [...document.querySelectorAll('#words .w')].map((w) => w.style.getPropertyValue('--v'))"
        many = driver.execute_script(shades)
        one = "const s = document.getElementById('samples'); s.value = 1; s.dispatchEvent(new Event('input'))"
        driver.execute_script(one)
        assert set(driver.execute_script(shades)) == {"", "0.000"}  # one sample has no mutual information
        assert len({shade for shade in many if shade}) > 5
        word = driver.find_elements("css selector", "#words .w")[3]
        click(driver, word)
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


def filter_labels(file):
    """The labels of the buttons that the content of the page asks for, without additional claims."""
    saved = re.search(
        r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', file.read_text(encoding="utf-8"), re.S
    )
    return [f"{group['name']} {group['paper']}" for group in json.loads(saved[1])["groups"]]


def overrides(command):
    """The words behind `python run.py`, without the seeds."""
    return tuple(word for word in command.split()[2:] if word != "-m" and not word.startswith("seed="))


def wait(condition, seconds: float = 20.0):
    """The first true value of a condition."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found
