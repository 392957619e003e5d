"""Claims about sentiment analysis, on synthetic curves shaped as the paper tells it, and on curves that are not."""

import pytest
import synthetic_records as synthetic

from varrnn.claims import CLAIMS, judge
from varrnn.claims.verdict import INDICATIVE, NOT_REPRODUCED, REPRODUCED, SHORT
from varrnn.records import Records, load

BY_ID = {claim.id: claim for claim in CLAIMS}
SAME = ["C26", "C27", "C28", "C30", "C31", "C33", "C34", "C35", "C36", "C37", "C38", "C39", "C42", "C49"]


@pytest.fixture
def records_of(tmp_path):
    """Records as they come from files."""
    return lambda contents: load(synthetic.save(contents, tmp_path / "records"))


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory) -> Records:
    return load(synthetic.save(synthetic.sentiment_records(), tmp_path_factory.mktemp("sentiment")))


@pytest.mark.parametrize("name", ["C26", "C27", "C28", "C30", "C31", "C33", "C34", "C35", "C36", "C37", "C38", "C39"])
def test_the_papers_story_of_sentiment(sentiment: Records, name: str) -> None:
    assert judge(BY_ID[name], sentiment).status == REPRODUCED, judge(BY_ID[name], sentiment)


@pytest.mark.parametrize("name", ["C40", "C41", "C42", "C43", "C49"])
def test_the_appendix_of_sentiment(sentiment: Records, name: str) -> None:
    assert judge(BY_ID[name], sentiment).status == REPRODUCED, judge(BY_ID[name], sentiment)


@pytest.mark.parametrize("name", SAME)
def test_curves_that_are_all_alike_reproduce_nothing(records_of, name: str) -> None:
    runs = BY_ID[name].needs.values()
    rough = 0.0 if name == "C37" else 0.001  # noise may put four values in any order
    contents = [synthetic.sentiment_run(run, seed, rough=rough) for run in runs for seed in (1, 2, 3)]
    for content in contents:
        content["batches"] = {"train_loss": [0.5] * 100}
    assert judge(BY_ID[name], records_of(contents)).status == NOT_REPRODUCED


@pytest.mark.parametrize("name", ["C29", "C32"])
def test_what_the_synthetic_curves_lack_is_reported_as_failed(sentiment: Records, name: str) -> None:
    assert judge(BY_ID[name], sentiment).status == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("seeds", "epochs", "status"), [((1, 2, 3), 40, SHORT), ((1, 2), 120, INDICATIVE), ((1,), 40, SHORT)]
)
def test_sentiment_needs_100_epochs_and_3_seeds(records_of, seeds, epochs, status) -> None:
    runs = BY_ID["C26"].needs.values()
    contents = [synthetic.sentiment_run(run, s, epochs, **synthetic.shape(run)) for run in runs for s in seeds]
    assert judge(BY_ID["C26"], records_of(contents)).status == status
