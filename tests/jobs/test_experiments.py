"""What compare and ablate have in common: which stages run for whom, in which order, and what --resume takes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adacalib.baselines.catalogue import BASELINES
from adacalib.config import RunConfig, parse_config
from adacalib.io import InputError
from adacalib.report.pictures import Picture
from jobs import ablate, compare, experiments
from jobs.experiments import (
    TABLE_STAGES,
    CodeChanged,
    Variant,
    collect,
    compute_code_digest,
    list_shared_settings,
    run_seeds,
    write_page,
)
from tests.jobs.small_experiments import experiment_config, make_console
from tests.small_runs import merge, predictor_config

SOME = {
    "plain": Variant("plain", {"mode": "robust"}),
    "paper": Variant("as published", {"mode": "paper"}),
    "dev_only": Variant("dev alone", {"fit_on": "dev"}),
}
OWN_TABLES = ("build_logit_cells", "compute_bin_statistics", "build_training_rows")


class Stages:
    """Stands in for the pipeline and the evaluation; records who ran what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[RunConfig, tuple[str, ...]]] = []
        self.evaluated: list[int] = []
        monkeypatch.setattr(experiments, "run_stages", self._run_stages)
        monkeypatch.setattr(experiments, "evaluate_seed", self._evaluate)
        monkeypatch.setattr(experiments.SessionOnDemand, "start", lambda self: None)

    def _run_stages(self, config: RunConfig, stages: tuple[str, ...], console: Any, session: Any) -> None:
        self.calls.append((config, stages))

    def _evaluate(self, spark: Any, config: RunConfig, trained: Any, baselines: Any) -> dict[str, Any]:
        self.evaluated.append(config.seed)
        return {"seed": config.seed, "trained": {name: str(path) for name, path in trained.items()}, "x": 0.1 + 0.2}

    def list_names(self) -> list[str]:
        return [config.name for config, _ in self.calls]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


def run(config: RunConfig, *, n_seeds: int = 1, resume: bool = False, variants: Any = None) -> list[dict[str, Any]]:
    return run_seeds(
        config,
        variants or SOME,
        {},
        n_seeds=n_seeds,
        folder="compare",
        resume=resume,
        console=make_console(),
    )


def test_a_seed_has_one_set_of_tables_and_one_predictor_for_all(stages: Stages, tmp_path: Path) -> None:
    results = run(predictor_config(tmp_path, {"seed": 20}), n_seeds=2)
    assert stages.list_names() == ["seed_20", "plain", "paper", "dev_only", "seed_21", "plain", "paper", "dev_only"]
    base, plain, paper, dev_only = stages.calls[:4]
    assert base[1] == TABLE_STAGES and "train_predictor" in base[1]
    assert plain[1] == paper[1] == ("train_calibrator",)
    assert dev_only[1] == (*OWN_TABLES, "train_calibrator")
    folder = tmp_path / "runs" / "small" / "compare"
    assert base[0].run_dir == folder / "seed_20" and base[0].inputs_from is None
    for config, _ in stages.calls[1:4]:
        assert config.inputs_dir == base[0].run_dir == config.run_dir.parent
    assert {config.seed for config, _ in stages.calls[:4]} == {20}
    assert {config.seed for config, _ in stages.calls[4:]} == {21}
    assert [result["seed"] for result in results] == stages.evaluated == [20, 21]
    assert results[0]["trained"] == {name: str(folder / "seed_20" / name / "unified") for name in SOME}


def test_a_run_with_its_own_scores_trains_no_predictor(stages: Stages, tmp_path: Path) -> None:
    run(experiment_config(tmp_path))
    assert stages.calls[0][1] == tuple(stage for stage in TABLE_STAGES if stage != "train_predictor")


def test_shared_tables_have_every_number_of_bins(stages: Stages, tmp_path: Path) -> None:
    run(experiment_config(tmp_path, {"bins": {"n_bins_candidates": None}}))
    base, plain, paper, _ = (config for config, _ in stages.calls)
    assert (plain.n_bins_candidates, paper.n_bins_candidates) == ((20,), (5, 10, 20))
    assert base.n_bins_candidates == (5, 10, 20)
    assert base.describe_generation("x") == plain.describe_generation("x") == paper.describe_generation("x")


def test_rows_that_all_are_fitted_on_are_the_users_choice(stages: Stages, tmp_path: Path) -> None:
    config = experiment_config(tmp_path, {"calibrator": {"fit_on": "dev"}})
    run(config, variants=compare.list_variants(config))
    assert all(each.calibrator.fit_on == "dev" for each, _ in stages.calls)
    assert all(stages_ == ("train_calibrator",) for _, stages_ in stages.calls[1:])


def test_a_run_on_the_tables_of_another_makes_its_own(stages: Stages, tmp_path: Path) -> None:
    run(experiment_config(tmp_path, {"inputs_from": "elsewhere"}))
    assert stages.calls[0][0].inputs_from is None


def test_tables_that_a_variant_had_under_other_settings_are_gone(stages: Stages, tmp_path: Path) -> None:
    stale = tmp_path / "runs" / "small" / "compare" / "seed_7" / "plain" / "tables" / "logit_cells"
    stale.mkdir(parents=True)
    run(experiment_config(tmp_path))
    assert not stale.parent.exists() and stale.parent.parent.exists()


def test_resume_takes_what_is_finished_and_runs_the_rest(stages: Stages, tmp_path: Path) -> None:
    config = experiment_config(tmp_path)
    first = run(config)
    again = run(config, n_seeds=3, resume=True)
    assert stages.evaluated == [7, 8, 9]
    assert again[0] == first[0] and [result["seed"] for result in again] == [7, 8, 9]
    assert "settings" not in again[0]
    run(config, n_seeds=2)  # without --resume everything is made anew
    assert stages.evaluated == [7, 8, 9, 7, 8]


def change(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    return parse_config(merge(config.model_dump(mode="json"), changes))


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({"note": "a sentence"}, True),
        ({"spark": {"master": "local[1]"}}, True),
        ({"evaluation": {"attainable_draws": 3}}, False),
        ({"input": {"label": "1 - label"}}, False),
        ({"split": {"train": 0.5, "dev": 0.3}}, False),
        ({"calibrator": {"auxiliary": {"epochs": 2}}}, False),
        ({"training": {"hold_out_share": 0.2}}, False),
        # the union over the variants stays 5, 10, 20; what robust mode chooses from does not
        ({"bins": {"n_bins_candidates": [5, 10, 20]}}, False),
    ],
)
def test_what_a_result_must_have_in_common(
    stages: Stages, tmp_path: Path, changes: dict[str, Any], is_taken: bool
) -> None:
    config = experiment_config(tmp_path, {"bins": {"n_bins_candidates": None}})
    run(config)
    run(change(config, changes), resume=True)
    assert stages.evaluated == ([7] if is_taken else [7, 7])


def test_another_method_makes_a_seed_run_again(stages: Stages, tmp_path: Path) -> None:
    config = experiment_config(tmp_path)
    run(config)
    for others in (
        {name: SOME[name] for name in ("plain", "paper")},
        SOME | {"plain": Variant("plain", {"value_slope": False})},
    ):
        run(config, resume=True, variants=others)
    assert stages.evaluated == [7, 7, 7]
    run(config, variants=SOME)
    run_seeds(config, SOME, BASELINES, n_seeds=1, folder="compare", resume=True, console=make_console())
    assert stages.evaluated == [7] * 5
    relabelled = {name: Variant(variant.label.upper(), variant.calibrator) for name, variant in SOME.items()}
    run_seeds(config, relabelled, BASELINES, n_seeds=1, folder="compare", resume=True, console=make_console())
    assert stages.evaluated == [7] * 5


def write_code(folder: Path, content: str = "x = 1\n") -> Path:
    """A tree of code as the digest sees it."""
    for name in ("adacalib/a.py", "adacalib/model/b.py", "jobs/c.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_a_digest_by_hand(tmp_path: Path) -> None:
    write_code(tmp_path)
    expected = b"adacalib/a.py 6;x = 1\nadacalib/model/b.py 6;x = 1\njobs/c.py 6;x = 1\n"
    assert compute_code_digest(tmp_path) == hashlib.sha256(expected).hexdigest()


def test_a_digest_is_of_the_code_and_of_nothing_else(tmp_path: Path) -> None:
    one, other = (write_code(tmp_path / name) for name in ("one", "other"))
    digest = compute_code_digest(one)
    (other / "adacalib" / "notes.txt").write_text("not code")
    (other / "tests.py").write_text("not of the rooms")
    assert compute_code_digest(other) == digest
    (other / "jobs" / "c.py").write_text("x = 2\n")
    assert compute_code_digest(other) != digest
    (one / "jobs" / "c.py").rename(one / "jobs" / "d.py")
    assert compute_code_digest(one) != digest


def test_a_digest_of_code_that_is_not_in_files(tmp_path: Path) -> None:
    (tmp_path / "adacalib.zip").write_bytes(b"PK")
    nothing = compute_code_digest(tmp_path / "adacalib.zip")
    assert nothing == compute_code_digest(tmp_path) == hashlib.sha256().hexdigest()
    shutil.rmtree(write_code(tmp_path) / "jobs")
    assert compute_code_digest(tmp_path) not in (nothing, compute_code_digest(experiments.CODE))


def test_resume_makes_the_seeds_of_other_code_again(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "CODE", write_code(tmp_path / "code"))
    config = experiment_config(tmp_path)
    run(config)
    run(config, resume=True)
    assert stages.evaluated == [7]
    write_code(tmp_path / "code", "x = 2\n")
    run(config, n_seeds=2, resume=True)
    run(config, n_seeds=2, resume=True)
    assert stages.evaluated == [7, 7, 8]


def test_code_that_changes_under_a_comparison_is_refused(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "CODE", write_code(tmp_path / "code"))
    config = experiment_config(tmp_path)

    def change_at_8(spark: Any, config: RunConfig, *others: Any) -> dict[str, Any]:
        if config.seed == 8:
            write_code(tmp_path / "code", "x = 2\n")
        return {"seed": config.seed}

    with monkeypatch.context() as changing:
        changing.setattr(experiments, "evaluate_seed", change_at_8)
        with pytest.raises(CodeChanged, match=r"seed_8: the code below .* changed.*; start again and leave"):
            run(config, n_seeds=2)
    assert not (tmp_path / "runs" / "small" / "compare" / "seed_8" / "result.json").exists()


def test_a_failure_leaves_the_seeds_before_it(stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment_config(tmp_path)

    def fail_at_8(real: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def evaluate(spark: Any, config: RunConfig, *others: Any) -> dict[str, Any]:
            if config.seed == 8:
                raise RuntimeError("disk full")
            return real(spark, config, *others)

        return evaluate

    with monkeypatch.context() as broken:
        broken.setattr(experiments, "evaluate_seed", fail_at_8(stages._evaluate))
        with pytest.raises(RuntimeError, match="disk full"):
            run(config, n_seeds=3)
    folder = tmp_path / "runs" / "small" / "compare"
    assert [(folder / f"seed_{seed}" / "result.json").is_file() for seed in (7, 8, 9)] == [True, False, False]
    run(config, n_seeds=3, resume=True)
    assert stages.evaluated == [7, 8, 9]


def test_a_damaged_result_is_named(stages: Stages, tmp_path: Path) -> None:
    config = experiment_config(tmp_path)
    run(config)
    (tmp_path / "runs" / "small" / "compare" / "seed_7" / "result.json").write_text('{"settings": ')
    with pytest.raises(InputError, match=r"result\.json: cannot be read"):
        run(config, resume=True)


def test_settings_that_mean_the_same_in_every_mode_reach_every_mode(tmp_path: Path) -> None:
    calibrator = {"epochs": 3, "penalty_weight": 0.5, "temperature_end": 0.4, "auxiliary": {"embedding_width": 4}}
    for mode in ("robust", "paper", "neucalib", "isotonic_offset"):
        config = experiment_config(tmp_path, {"calibrator": calibrator | {"mode": mode}})
        for job in (compare, ablate):
            for variant in job.list_variants(config).values():
                made = change(config, {"calibrator": None} | {"calibrator": variant.calibrator}).calibrator
                told = (made.epochs, made.penalty_weight, made.temperature_end, made.auxiliary.embedding_width)
                assert told == (3, 0.5, 0.4, 4)
        modes = {name: variant.calibrator["mode"] for name, variant in compare.list_variants(config).items()}
        assert modes["adacalib"] == "robust" and modes["adacalib_paper"] == "paper"
    assert "value_level" not in list_shared_settings(config)


def test_compare_trains_the_users_own_robust_mode(tmp_path: Path) -> None:
    config = experiment_config(tmp_path, {"calibrator": {"value_slope": False, "re_level": False}})
    variants = compare.list_variants(config)
    assert list(variants) == [
        *("neucalib", "isotonic_offset_auxiliary", "adacalib_paper", "adacalib_no_auxiliary", "adacalib"),
    ]
    assert variants["adacalib"].calibrator["value_slope"] is False
    # the rival differs in its functions, and in nothing else
    assert variants["isotonic_offset_auxiliary"].calibrator["re_level"] is False
    ours, rival = (
        variants["adacalib"].calibrator["auxiliary"],
        variants["isotonic_offset_auxiliary"].calibrator["auxiliary"],
    )
    assert ours == rival
    without = variants["adacalib_no_auxiliary"].calibrator["auxiliary"]
    assert without["enabled"] is False and ours | {"enabled": False} == without


def test_parents_have_rows_where_the_run_has_them(tmp_path: Path) -> None:
    plain = experiment_config(tmp_path)
    assert "adacalib_no_parent" not in compare.list_variants(plain)
    assert "robust_no_parent" not in ablate.list_variants(plain)
    config = parse_config(plain.model_dump(mode="json") | {"parent": "hour"})
    full = compare.list_variants(config)["adacalib"].calibrator
    assert compare.list_variants(config)["adacalib_no_parent"].calibrator == full | {"value_parent": False}
    rows = ablate.list_variants(config)
    assert rows["robust_no_parent"].calibrator == full | {"value_parent": False}


@pytest.mark.parametrize(
    "changes", [{"features": {"numeric": []}, "calibrator": {}}, {"calibrator": {"auxiliary": {"enabled": False}}}]
)
def test_without_a_network_its_rows_are_not_there(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = parse_config(experiment_config(tmp_path).model_dump(mode="json") | changes)
    assert not config.has_auxiliary_network
    assert list(compare.list_variants(config)) == ["neucalib", "adacalib_paper", "adacalib"]
    assert not {name for name in ablate.list_variants(config) if "auxiliary" in name or "embedding" in name}


def test_pages_are_whole_and_their_pictures_beside_them(tmp_path: Path) -> None:
    config = experiment_config(tmp_path)
    write_page(
        config, "compare.html", "<p>first</p>", [Picture("one", "a picture", "how to read it", b"\x89PNG", 4, 3)]
    )
    write_page(config, "compare.html", "<p>second ±</p>", [])
    assert (config.run_dir / "compare.html").read_text(encoding="utf-8") == "<p>second ±</p>"
    assert (config.run_dir / "figures" / "one.png").read_bytes() == b"\x89PNG"
    assert sorted(path.name for path in config.run_dir.iterdir()) == ["compare.html", "figures"]


def test_collect_by_hand() -> None:
    results = [{"methods": {"a": {"auc": value}}} for value in (0.5, None, 0.7)]
    assert collect(results, "a", "auc") == [0.5, None, 0.7]
    assert json.loads(json.dumps(collect(results, "a", "auc"))) == [0.5, None, 0.7]
