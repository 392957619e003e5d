"""The composed configs of Table 1, the folders of runs, and the messages for invalid options."""

import itertools
import re
from dataclasses import replace

import pytest
from helpers import runs as small_runs
from omegaconf import OmegaConf

from varrnn.cli import argv as cli_argv
from varrnn.cli.errors import format_error, option_docs
from varrnn.config import compose, identity, schema
from varrnn.errors import UserError
from varrnn.training import run as training_run

MODELS = ("none", "naive", "moon", "moon_emb", "variational_tied", "variational_untied")
# per row: rates (p_E, p_W, p_U, p_c, p_y), weight decay, max_epoch, early stopping; paper's text and authors' scripts
MEDIUM = {
    "none": ((0, 0, 0, 0, 0), 0, 6, True),
    "naive": ((0, 0.5, 0, 0, 0.5), 0, 6, False),
    "moon": ((0, 0.3, 0, 0.3, 0.3), 1e-7, 6, False),
    "moon_emb": ((0.2, 0.3, 0, 0.3, 0.3), 1e-7, 6, False),
    "variational_tied": ((0.2, 0.35, 0.2, 0, 0.35), 1e-7, 6, False),
    "variational_untied": ((0.2, 0.35, 0.2, 0, 0.35), 1e-7, 6, False),
}
LARGE = {
    "none": ((0, 0, 0, 0, 0), 0, 14, True),
    "naive": ((0, 0.65, 0, 0, 0.65), 0, 14, False),
    "moon": ((0, 0.5, 0, 0.5, 0.5), 1e-7, 10, True),
    "moon_emb": ((0.3, 0.5, 0, 0.5, 0.5), 1e-7, 10, False),
    "variational_tied": ((0.3, 0.5, 0.3, 0, 0.5), 1e-7, 10, False),
    "variational_untied": ((0.3, 0.5, 0.3, 0, 0.5), 1e-7, 10, False),
}


@pytest.mark.costly(2)
@pytest.mark.parametrize(("size", "model"), list(itertools.product(("medium", "large"), MODELS)))
def test_the_rows_of_table_1(size, model):
    made = compose.compose([f"experiment=ptb_{size}", f"model={model}"])
    rates, weight_decay, max_epoch, early_stopping = {"medium": MEDIUM, "large": LARGE}[size][model]
    chosen = made.model
    assert (chosen.p_E, chosen.p_W, chosen.p_U, chosen.p_c, chosen.p_y) == rates
    assert (chosen.per_step, chosen.per_gate) == (model == "naive", model == "variational_untied")
    assert (made.optim.weight_decay, made.optim.max_epoch) == (weight_decay, max_epoch)
    assert made.train.early_stopping is early_stopping and made.train.patience == (8 if model == "none" else 0)
    units, init, clip, decay, epochs = {"medium": (650, 0.05, 5, 1.2, 39), "large": (1500, 0.04, 10, 1.15, 55)}[size]
    assert (made.size.units, made.size.layers, made.size.init) == (units, 2, init)
    assert (made.optim.clip, made.optim.decay, made.optim.epochs, made.optim.lr) == (clip, decay, epochs, 1.0)
    assert (made.task.steps, made.task.batch_size, chosen.word_tokens) == (35, 20, False)
    assert made.mc.samples == (1000 if model.startswith("variational") else 0) and not made.mc.word_dropout


@pytest.mark.slow
def test_the_small_size():
    none = compose.compose(["experiment=ptb_small", "model=none"])
    assert (none.task.steps, none.optim.decay, none.optim.max_epoch, none.optim.epochs) == (20, 2.0, 4, 13)
    ours = compose.compose(["experiment=ptb_small", "model=naive"])
    assert (ours.task.steps, ours.optim.decay, ours.optim.max_epoch, ours.optim.epochs) == (35, 1.3, 6, 22)
    long = compose.compose(["experiment=ptb_small_long", "model=naive"])
    assert (long.optim.decay, long.optim.max_epoch, long.optim.epochs) == (1.12, 9, 50)


@pytest.mark.slow
def test_a_protocol_is_chosen_by_one_override():
    paper, code = (compose.compose(["experiment=ptb_large", f"protocol={name}"]) for name in ("paper", "authors_code"))
    assert (paper.model.word_tokens, paper.mc.samples, paper.task.headline) == (False, 1000, "exact")
    assert (code.model.word_tokens, code.mc.samples, code.task.headline) == (True, 2000, "authors")
    assert compose.diff(code) == {}


@pytest.mark.parametrize("model", ["naive", "moon", "moon_emb"])
@pytest.mark.slow
def test_protocols_sample_only_the_models_that_table_1_samples(model) -> None:
    for protocol in ("paper", "authors_code"):
        assert compose.compose(["experiment=ptb_large", f"model={model}", f"protocol={protocol}"]).mc.samples == 0
    assert compose.compose(["experiment=ptb_large", "protocol=authors_code", "mc.samples=7"]).mc.samples == 7


def test_every_choice_of_table_1_has_a_tuned_file_and_every_file_a_choice():
    names = {file.stem for file in (compose.CONFIGS / "tuned").glob("*.yaml")}
    needed = {f"ptb_{size}_{model}" for size in ("small", "medium", "large") for model in MODELS}
    assert needed <= names
    groups = {group: {f.stem for f in (compose.CONFIGS / group).glob("*.yaml")} for group in ("task", "size", "model")}
    possible = {"_".join(parts) for parts in itertools.product(groups["task"], groups["size"], groups["model"])}
    assert names <= possible, "a tuned file that no choice of groups would ever load"


@pytest.mark.slow
def test_weight_decay_of_each_cell():
    """The weight decay was chosen on held-out reviews for each cell; the command line overrides it."""
    words = ["experiment=cornell", "model=variational_untied"]
    own = compose.compose(["task=reviews", "task.path=x.csv", "model=variational_untied", "cell=gru"])
    assert own.optim.weight_decay == compose.compose([*words, "cell=gru"]).optim.weight_decay
    found = {cell: compose.compose([*words, f"cell={cell}"]) for cell in ("lstm", "gru", "rnn")}
    assert found["lstm"].optim.weight_decay == 1e-3 and found["gru"].optim.weight_decay < 1e-4
    assert all(compose.diff(made) == {} for made in found.values())
    assert compose.compose([*words, "cell=gru", "optim.weight_decay=0.5"]).optim.weight_decay == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("group", ["model", "size", "task", "protocol"])
def test_names_inside_the_files_are_the_files_names(group):
    for file in sorted((compose.CONFIGS / group).glob("*.yaml")):
        assert compose.choices(compose.compose([f"{group}={file.stem}"]))[group] == file.stem


@pytest.mark.slow
def test_a_grid_point_changes_its_tied_rate_and_names_its_folder():
    made = compose.compose(["experiment=ptb_medium", "model.p_U=0.3", "seed=2", "runs_root=there"])
    assert made.model.p_E == 0.3
    folder = compose.run_dir(made)
    assert folder.parts == (
        "there",
        "ptb",
        "medium",
        "variational_untied",
        "lstm",
        "paper",
        "model.p_E=0.3,model.p_U=0.3",
        "seed_2",
    )
    assert compose.run_dir(compose.compose(["task=ptb", "size=medium"])).parts[-2:] == ("default", "seed_1")


@pytest.mark.slow
def test_runs_on_user_texts_have_short_folder_names(tmp_path):
    deep = "/".join(["some", "long folder", "x" * 80])
    words = ["task=text", *(f"task.{name}={deep}/{name}.txt" for name in ("train", "valid", "test"))]
    made = compose.compose([*words, f"runs_root={tmp_path}", "optim.lr=0.5"])
    name = compose.run_dir(made).parts[-2]
    assert re.fullmatch(r"optim\.lr=0\.5,train=train\.txt~[0-9a-f]{8}", name)
    other = compose.compose([*words, f"runs_root={tmp_path}", "optim.lr=0.5", f"task.test={deep}/other.txt"])
    assert compose.run_dir(other) != compose.run_dir(made)
    reviews = compose.compose(["task=reviews", "task.path=my/very/own.csv"])
    assert re.fullmatch(r"csv=own\.csv~[0-9a-f]{8}", compose.run_dir(reviews).parts[-2])


def test_a_folder_that_an_early_version_named_after_whole_paths_is_used(tmp_path):
    words = ["task=text", "task.train=a/b", "task.valid=c", "task.test=d", f"runs_root={tmp_path}"]
    new = compose.run_dir(compose.compose(words))
    early = new.parents[1] / "task.test=d,task.train=a%b,task.valid=c" / "seed_1"
    early.mkdir(parents=True)
    assert compose.run_dir(compose.compose(words)) == early
    new.mkdir(parents=True)
    assert compose.run_dir(compose.compose(words)) == new


@pytest.mark.slow
def test_what_does_not_change_the_result_does_not_change_the_folder():
    plain = compose.compose([])
    moved = compose.compose(["device=cpu", "threads=3", "mc.samples=7", "train.log_every=1", "progress=false"])
    assert compose.run_dir(plain) == compose.run_dir(moved)
    assert compose.run_dir(plain) != compose.run_dir(compose.compose(["optim.lr=0.5"]))


def test_no_decay_survives_a_tuned_schedule():
    assert compose.compose(["experiment=ptb_small", "model=none", "optim=no_decay"]).optim.schedule == "constant"


def test_a_saved_config_comes_back(tmp_path):
    made = compose.compose(["task=ptb", "model.p_U=0.15"])
    compose.save_config(made, tmp_path / "config.yaml")
    assert compose.load_config(tmp_path) == made
    assert compose.load_config(tmp_path, ["mc.samples=3"]).mc.samples == 3
    with pytest.raises(UserError, match=r"model\.p_U=0\.3: .*mc\.\*="):
        compose.load_config(tmp_path, ["model.p_U=0.3"])


@pytest.mark.costly(12)
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model=variational_untide", "did you mean variational_untied"),
        ("experiment=ptb_medum", "did you mean ptb_medium"),
        ("modle=none", "did you mean model"),
        ("model.p_u=0.1", "did you mean model.p_U?"),
        ("optim.epoch=3", "did you mean optim.epochs"),
        ("model.p_X=3", "model.p_X: there is no such group or option"),
        ("task.hold_out=0.1", "task.hold_out: an option of sentiment tasks"),
        ("seed=1,2", "several values make a sweep; add -m"),
        ("nonsense", "nonsense: not a KEY=VALUE"),
        ("model.p_U=1.5", "model.p_U=1.5: a probability of dropping"),
        ("model.name=''", "model.name is not set"),
        ("optim.epochs=many", "optim.epochs"),
        ("cell=lstn", "allowed are lstm, gru, rnn"),
        ("model.p_U=1.0", "at least 0 and below 1"),
        ("run_dir=", "run_dir=: empty; give a folder"),
        ("runs_root=' '", "runs_root= : empty; give a folder"),
        ("optim.lr=0", "optim.lr=0.0: must be above 0"),
        ("size.units=0", "size.units=0: must be at least 1"),
        ("size.init=-1", "size.init=-1.0: must be at least 0"),
        ("seed=99999999999999999999", "seed=99999999999999999999: must be at most"),
        ("optim.decay_rule=one_gate", "optim.decay_rule=one_gate: only with optim"),
        ("optim.clip=nan", "optim.clip=nan: must be a finite number"),
        ("optim.lr=inf", "optim.lr=inf: must be a finite number"),
        ("size.init=inf", "size.init=inf: must be a finite number"),
        ("optim.weight_decay=2", "optim.weight_decay=2.0: must be below 1"),
        ("train.checkpoint_minutes=-3", "train.checkpoint_minutes=-3.0: must be at least 0"),
        ("task.min_count=-5", "task.min_count=-5: must be at least 1"),
        ("threads=100000", "threads=100000: must be at most 1024"),
        ("+optim.lrr=3", "optim.lrr: there is no such option; did you mean optim.lr"),
        ("+foo=3", "foo: there is no such option"),
        ("task.path=/tmp/x(y)", "needs quotes"),
    ],
)
def test_mistakes_get_one_helpful_message(override, expected):
    with pytest.raises(Exception) as caught:
        compose.compose([override])
    message = format_error(caught.value)
    assert expected in message and "\n" not in message


def test_an_unknown_cell_is_named_where_a_tuned_value_depends_on_the_cell():
    with pytest.raises(UserError, match="cell=lstn: allowed are lstm, gru, rnn"):
        compose.compose(["experiment=cornell", "cell=lstn"])


@pytest.mark.slow
def test_a_typo_is_named_even_with_a_sweep():
    done = small_runs.python("run.py", "launcher=joblib", "seed=1,2", "modle=naive")
    assert done.returncode == 1 and done.stderr.startswith("error: modle: there is no such group or option")
    for words in ("task=cornell,reviews task.hold_out=0.1", "--config-dir configs model=mine seed=1,2"):
        done = small_runs.python("run.py", *words.split())
        assert "several values make a sweep; add -m" in done.stderr, "the other words are right, or not known here"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("task.train=a.txt", "task.train=a.txt: task=pydoc does not read it; only with task=text"),
        ("task.min_count=7", "task.min_count=7: task=pydoc does not read it; only with task=text"),
        ("task.path=x", "task.path=x: task=pydoc does not read it; only with task=ptb"),
        ("task=synthetic_reviews task.path=x.csv", "does not read it; only with task=cornell or task=reviews"),
    ],
)
def test_data_options_that_the_task_does_not_read_are_rejected(words, expected, tmp_path):
    with pytest.raises(UserError, match=re.escape(expected)):
        training_run.run(compose.compose([*words.split(), f"runs_root={tmp_path}"]))


def test_moon_needs_a_memory():
    with pytest.raises(UserError, match=r"cell=gru: dropout on the memory .* set cell=lstm or model\.p_c=0"):
        compose.compose(["model=moon", "cell=gru"])


def test_every_option_has_a_help_string():
    missing = [key for key, sentence in option_docs().items() if len(sentence) < 10]
    assert not missing
    assert {"model.p_U", "optim.lr", "task.corpus", "mc.samples", "runs_root"} <= option_docs().keys()


@pytest.mark.slow
def test_the_command_line_answers_without_a_traceback():
    done = small_runs.python("run.py", "model=variational_untide")
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    assert done.stderr.startswith("error: model=variational_untide: allowed are")


@pytest.mark.slow
def test_help_explains_groups_and_keys():
    done = small_runs.python("run.py", "--help")
    assert done.returncode == 0 and "run_dir=null" in done.stdout and "=None" not in done.stdout
    for word in (
        "model=",
        "experiment=",
        "ptb_medium",
        "variational_untied",
        "optim.epochs",
        "probability of dropping",
    ):
        assert word in done.stdout


def test_user_files_are_detected_by_the_corpus_not_by_the_name_of_the_task():
    assert schema.LanguageModelConfig(name="mine", corpus="text").user_files
    assert schema.SentimentConfig(name="mine", reviews="csv").user_files
    assert not schema.LanguageModelConfig(name="text", corpus="ptb").user_files
    assert not schema.SentimentConfig(name="reviews", reviews="cornell").user_files


@pytest.mark.parametrize("task", ["cornell", "reviews", "synthetic_reviews"])
@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
@pytest.mark.slow
def test_sentiment_masks_are_of_zeros_and_ones(task, protocol):
    made = compose.compose([f"task={task}", f"protocol={protocol}"])
    assert made.task.scaling == "retain"


@pytest.mark.slow
def test_scaling_of_masks_belongs_to_runs_that_have_masks():
    """A run without dropout keeps its identity when the default of the scaling changes."""

    def folder(*words: str) -> str:
        return compose.run_dir(compose.compose(["experiment=cornell", *words])).parent.name

    inverted = "task.scaling=inverted"
    assert folder("model=none") == folder("model=none", inverted) == "default"
    assert (folder("model=naive"), folder("model=naive", inverted)) == ("default", inverted)
    without = ("model=naive", "model.p_W=0")
    assert folder(*without) == folder(*without, inverted) == "model.p_W=0.0,model.p_y=0.0"
    given = ("model=none", "model.p_W=0.5")
    assert (folder(*given), folder(*given, inverted)) == ("model.p_W=0.5", f"model.p_W=0.5,{inverted}")


@pytest.mark.slow
def test_naive_recurrent_is_naive_with_a_recurrent_mask_at_every_step():
    for where, p_U in (("ptb_small", 0.1), ("ptb_medium", 0.1), ("ptb_large", 0.1), ("cornell", 0.25)):
        naive, recurrent = (
            compose.compose([f"experiment={where}", f"model={name}"]) for name in ("naive", "naive_recurrent")
        )
        assert recurrent.model.p_U == p_U and recurrent.model.per_step and not naive.model.p_U
        same = replace(recurrent, model=replace(recurrent.model, name="naive", p_U=0.0))
        assert same == naive


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("variational_untied", ["model.p_U=0.1"], ["model.p_U=0.1 also sets model.p_E=0.1"]),
        ("variational_tied", ["model.p_W=0.1"], ["model.p_W=0.1 also sets model.p_y=0.1"]),
        ("variational_untied", ["model.p_U=0.1,0.2", "seed=1,2"], ["model.p_U=0.1,0.2 also sets model.p_E=0.1,0.2"]),
        ("variational_untied", ["model.p_U=0.1", "model.p_E=0.3"], []),
        ("variational_untied", ["model.p_E=0.3", "optim.lr=0.1"], []),
        ("none", ["model.p_U=0.1"], []),
    ],
)
def test_an_override_that_also_changes_a_tied_rate_is_reported(model, given, message):
    composed = compose.compose_raw([f"model={model}", *(word.split(",")[0] for word in given)])
    found = compose.explain_tied_rates(composed, given)
    assert len(found) == len(message) and all(line.startswith(start) for line, start in zip(found, message))
    assert all(f"model={model} ties to it" in line for line in found)


def test_the_help_names_tied_rates():
    shown = cli_argv.format_help()
    assert re.search(r"model\.p_U=\S+ .*variants set model\.p_E", shown)
    assert re.search(r"model\.p_W=\S+ .*variants set model\.p_y", shown)


@pytest.mark.parametrize("early", ["'true'", "true"])
def test_an_early_headline_in_a_runs_folder_reads_as_exact(tmp_path, early):
    compose.save_config(compose.compose(["task=ptb"]), tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    assert "headline: exact" in text
    (tmp_path / "config.yaml").write_text(text.replace("headline: exact", f"headline: {early}"))
    assert compose.load_config(tmp_path).task.headline == "exact"


@pytest.mark.slow
def test_the_headline_can_be_given_on_the_command_line():
    for value in ("exact", "authors"):
        assert compose.compose(["task=pydoc", f"task.headline={value}"]).task.headline == value


@pytest.mark.slow
def test_the_kind_of_a_task_follows_from_the_task():
    assert compose.compose(["task=ptb"]).task.kind == "language_model"
    assert compose.compose(["task=cornell"]).task.kind == "sentiment"
    with pytest.raises(UserError, match=r"task\.kind=sentiment: task=ptb .*language_model"):
        compose.compose(["task=ptb", "task.kind=sentiment"])


@pytest.mark.parametrize("task", ["ptb", "cornell"])
def test_a_config_from_before_the_kind_of_a_task_was_saved_is_read(tmp_path, task):
    config = compose.compose([f"task={task}"])
    compose.save_config(config, tmp_path / "config.yaml")
    saved = OmegaConf.load(tmp_path / "config.yaml")
    del saved.task["kind"]
    OmegaConf.save(saved, tmp_path / "config.yaml")
    assert compose.load_config(tmp_path) == config
    saved.task.kind = "chess"
    OmegaConf.save(saved, tmp_path / "config.yaml")
    with pytest.raises(UserError, match=r"task\.kind is 'chess'"):
        compose.load_config(tmp_path)


@pytest.mark.parametrize("task, extendable", [("ptb", False), ("cornell", True)])
def test_a_record_from_before_the_kind_of_a_task_was_saved_matches(task, extendable):
    wanted = identity.identity_of((f"task={task}",))
    older = identity.Identity(
        wanted.choices, {key: value for key, value in wanted.options.items() if key != "task.kind"}
    )
    assert identity.matches(older, wanted) and older.extendable == wanted.extendable == extendable
    shorter = identity.Identity(wanted.choices, {**older.options, "optim.epochs": 1})
    assert identity.matches(shorter, wanted) == extendable
