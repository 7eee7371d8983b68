"""Logs become a prior: the same one whatever the order, the files and the workers."""

import itertools
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.fleet import Columns, Logs, check, fit
from headstart.fleet.options import parse_bytes, parse_transfer
from headstart.model.evidence import packed_size
from headstart.transfer import standardize
from headstart.transfer.empirical_bayes.refits import passes
from headstart.transfer.standardize import Standardization

COLUMNS = Columns("task", "reward", "x*")
AS_THEY_ARE = {"intercept": False, "standardize": False}


def rows_of(tasks=60, dim=4, seed=0, length=12):
    """Rows of tasks that differ in one direction, in random order."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.repeat(np.arange(tasks), length))
    theta = 1.0 + np.multiply.outer(rng.normal(size=tasks), np.linspace(1, 2, dim))
    x = rng.normal(size=(len(owner), dim)).astype(np.float32)
    reward = (x * theta[owner]).sum(1) + 0.3 * rng.normal(size=len(owner))
    columns = {f"x{j}": x[:, j] for j in range(dim)}
    return pa.table({"task": [f"user {n}" for n in owner], "reward": reward, **columns})


def write(folder, table, files=1, group=100):
    folder.mkdir(exist_ok=True)
    edges = np.linspace(0, len(table), files + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        part = table.slice(start, stop - start)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=group)
    return Logs(str(folder / "*.parquet"), COLUMNS)


def evidence_of(table):
    """Every task's evidence, one by one."""
    names = np.array(table["task"].to_pylist())
    x = np.column_stack([table[name].to_numpy() for name in table.column_names if name[0] == "x"])
    rewards = table["reward"].to_numpy()
    return {
        name: hs.Evidence.of(x[names == name].astype(float), rewards[names == name])
        for name in sorted(set(names))
    }


def same(left, right, close=1e-9):
    for name in ("mean", "covariance", "noise"):
        ours, theirs = np.asarray(getattr(left, name)), np.asarray(getattr(right, name))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=close * np.abs(theirs).max())


@pytest.mark.parametrize(
    "transfer",
    [
        hs.EmpiricalBayes(),
        hs.Subspace(rank=1, min_rounds=1),
        hs.Bias(),
        hs.Gaussian(forced=False),
        hs.Independent("plug-in"),
    ],
    ids=repr,
)
def test_the_prior_is_that_of_all_tasks(transfer, tmp_path):
    table = rows_of()
    found = fit(write(tmp_path, table, 3), transfer, **AS_THEY_ARE)
    assert (found.tasks, found.rows, found.bad.count) == (60, 720, 0)
    same(found.prior, transfer.prior(transfer.refit(evidence_of(table).values())))


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Subspace(rank=1)], ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
def test_features_are_standardized(transfer, intercept, tmp_path):
    table = rows_of()
    for name, shift, scale in (("x0", 1000.0, 1.0), ("x1", 0.0, 100.0), ("x2", 3.0, 1e-3)):
        place = table.column_names.index(name)
        column = table[name].to_numpy().astype(float) * scale + shift
        table = table.set_column(place, name, pa.array(column))
    x = np.column_stack([table[f"x{j}"].to_numpy() for j in range(4)])
    centred = x - x.mean(0) if intercept else x
    units = np.sqrt((centred**2).mean(0))
    ours = np.hstack([centred / units, np.ones((len(x), 1))]) if intercept else centred / units
    names, rewards = np.array(table["task"].to_pylist()), table["reward"].to_numpy()
    tasks = [
        hs.Evidence.of(ours[names == name], rewards[names == name]) for name in sorted(set(names))
    ]
    transfer = transfer.with_constant(intercept)
    want = transfer.prior(transfer.refit(tasks))
    found = fit(write(tmp_path, table, 3), transfer, intercept=intercept)
    same(transfer.prior(found.state), want, 1e-6)  # digits are lost with 1000 in squares
    # The same function of a context, in either units
    prior = found.prior
    both = np.hstack([x, np.ones((len(x), 1))]) if intercept else x
    np.testing.assert_allclose(both @ prior.mean, ours @ want.mean, rtol=1e-5, atol=1e-7)
    spread = np.einsum("ij,jk,ik->i", both, prior.covariance, both)
    want_spread = np.einsum("ij,jk,ik->i", ours, want.covariance, ours)
    np.testing.assert_allclose(spread, want_spread, rtol=1e-4)
    bandit = found.bandit(seed=0)
    assert bandit.dim == 4
    belief = bandit.task("new").belief
    np.testing.assert_allclose(ours[:5] @ belief.mean, both[:5] @ prior.mean, rtol=1e-5)
    choice = bandit.task("new").choose(x[:5])
    np.testing.assert_array_equal(choice.context, x[choice.arm])  # as it was given


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint8, np.uint32, np.uint64])
def test_ids_of_every_kind_of_whole_number(kind, tmp_path):
    table = rows_of()
    ids = pa.array([int(name.split()[1]) for name in table["task"].to_pylist()]).cast(
        pa.from_numpy_dtype(kind)
    )
    found = fit(write(tmp_path / "a", table.set_column(0, "task", ids)), **AS_THEY_ARE)
    same(found.prior, fit(write(tmp_path / "b", rename(table, "user ", "")), **AS_THEY_ARE).prior)


def rename(table, old, new):
    """The table with another text in the ids of tasks."""
    ids = [name.replace(old, new) for name in table["task"].to_pylist()]
    return table.set_column(0, "task", pa.array(ids))


def test_columns_that_are_not_read_are_no_features(tmp_path):
    table = rows_of(20).append_column("time", pa.array(np.arange(240)))
    write(tmp_path, table)
    columns = Columns("task", "reward", "*", timestamp="time")
    found = fit(Logs(str(tmp_path), columns), hs.Bias())
    assert found.feature_names == ("x0", "x1", "x2", "x3")
    same(found.prior, fit(Logs(str(tmp_path), COLUMNS), hs.Bias()).prior)


def test_units_do_not_matter(tmp_path):
    table = rows_of(100)
    here = fit(write(tmp_path / "a", table)).prior
    scaled = table.set_column(2, "x0", pa.array(table["x0"].to_numpy().astype(float) * 1e6))
    there = fit(write(tmp_path / "b", scaled)).prior
    unit = np.array([1e6, 1, 1, 1, 1])
    np.testing.assert_allclose(there.mean * unit, here.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        there.covariance * np.outer(unit, unit), here.covariance, rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("constant", [None, 0, 3])
def test_compiled_and_plain_units_agree(constant, monkeypatch):
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 30, 4)) + np.arange(1.0, 5.0)
    if constant is not None:
        x[..., constant] = 1.0
    tasks = hs.Evidence.of(x, rng.normal(size=(5, 30)))
    whole = hs.Evidence.of(x.reshape(-1, 4), np.zeros(150))
    units = Standardization.of(whole, constant)
    changed = x @ units.matrix.T
    np.testing.assert_allclose(units.contexts(x), changed, atol=1e-12)
    want = hs.Evidence.of(changed, np.zeros((5, 30))).gram
    for work in (0, 10**6):
        form = standardize.STANDARDIZE_ROWS.form(work) if work else standardize.standardize_rows
        monkeypatch.setattr(standardize.STANDARDIZE_ROWS, "form", lambda _, form=form: form)
        found = units.evidence(tasks)
        np.testing.assert_allclose(found.gram, want, atol=1e-10)
        np.testing.assert_allclose(found.moment, tasks.moment @ units.matrix.T, atol=1e-10)
    others = np.delete(changed.reshape(-1, 4), constant if constant is not None else [], axis=1)
    np.testing.assert_allclose((others**2).mean(0), 1.0)
    if constant is not None:
        np.testing.assert_allclose(others.mean(0), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "transfer", [hs.EmpiricalBayes(), hs.Mixture(groups=2), hs.Bias()], ids=repr
)
def test_order_files_and_workers_do_not_matter(transfer, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "FIRST_FIT_TASKS", 32)
    table = rows_of(300)
    first = fit(write(tmp_path / "a", table), transfer, workers=1)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    logs = write(tmp_path / "b", shuffled, 5, 333)
    second = fit(logs, transfer, workers=2, memory=64 << 20)
    whole = [one.prior.as_gaussian() for one in (first, second)]
    same(*whole)


def test_passes_over_portions_find_what_a_fit_of_all_finds(tmp_path, monkeypatch):
    monkeypatch.setattr("headstart.transfer.empirical_bayes.refits.passes.FIRST_FIT_TASKS", 64)
    table = rows_of(600)
    found = fit(write(tmp_path, table), **AS_THEY_ARE).prior
    transfer = hs.EmpiricalBayes()
    whole = transfer.prior(transfer.refit(evidence_of(table).values()))
    # Closer to each other than either is to the truth: a mean errs by √(Σ/600), a variance by
    # √(2/600), or 6 %.
    error = np.sqrt(np.diag(whole.covariance) / 600)
    assert (np.abs(found.mean - whole.mean) < 0.15 * error).all()
    np.testing.assert_allclose(found.covariance, whole.covariance, rtol=0.02)
    assert found.noise == pytest.approx(whole.noise, rel=0.02)


def test_the_file_serves_new_tasks_at_once(tmp_path):
    table = rows_of()
    out = tmp_path / "prior.headstart"
    found = fit(write(tmp_path / "logs", table), out=out)
    bandit = hs.load(out)
    assert len(bandit) == 0
    assert bandit.feature_names == ("x0", "x1", "x2", "x3")
    same(bandit.prior, found.transfer.prior(found.state))
    report = bandit.report()
    assert report.closed_tasks == 60
    assert report.rounds == 720
    assert report.gain.low > 0.1
    contexts = np.random.default_rng(0).normal(size=(5, 4))
    predicted = bandit.task("new").predict(contexts).mean
    assert predicted == pytest.approx(contexts @ found.prior.mean[:4] + found.prior.mean[4])


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Bias(), hs.Subspace(pca="ccipca")])
def test_a_fitted_bandit_goes_on_learning(transfer, tmp_path):
    found = fit(write(tmp_path / "logs", rows_of()), transfer)
    bandit = found.bandit(seed=0)
    contexts = np.random.default_rng(0).normal(size=(5, 4))
    for number in range(6):
        task = bandit.task(number)
        for _ in range(8):
            task.learn(task.choose(contexts), 1.0)
        task.close()
    learned = bandit.prior
    fitted = transfer.prior(found.state)
    assert not np.allclose(learned.mean, fitted.mean)
    assert bandit.report().closed_tasks == 66
    # The file keeps it; and what was learned since can be forgotten without forgetting the logs.
    bandit.save(tmp_path / "later")
    again = hs.load(tmp_path / "later")
    same(again.prior, learned)
    for number in range(6):
        again.delete(number)
    same(again.prior, fitted)


def test_kept_tasks_go_on_where_they_were(tmp_path):
    table = rows_of(length=3)
    out = tmp_path / "prior.headstart"
    found = fit(write(tmp_path / "logs", table), out=out, keep_tasks=True, intercept=False)
    bandit = hs.load(out)
    tasks = {name: found.units.evidence(one) for name, one in evidence_of(table).items()}
    assert set(bandit) == set(tasks)
    assert bandit.report().closed_tasks == 60
    for name, evidence in tasks.items():
        kept = bandit.task(name).evidence
        np.testing.assert_allclose(kept.pack(), evidence.pack(), rtol=1e-12, atol=1e-12)
    assert not np.allclose(bandit.task("user 7").predict(np.eye(4)).mean, bandit.prior.mean)
    task = bandit.task("user 7")
    assert task.learn(task.choose(np.eye(4)), 2.0)
    assert bandit.report().closed_tasks == 59


def test_tasks_that_do_not_fit_are_not_kept(tmp_path, monkeypatch):
    logs = write(tmp_path, rows_of(2000, length=2))
    monkeypatch.setattr(sys.modules["headstart.fleet.fit"], "MIN_MEMORY", 0)
    memory = 2000 * 8 * packed_size(5)
    with pytest.raises(hs.InputError, match=r"2,000 tasks take .* raise memory \(--memory\)"):
        fit(logs, hs.Bias(), keep_tasks=True, memory=memory - 1)
    assert len(fit(logs, hs.Bias(), keep_tasks=True, memory=memory).bandit()) == 2000


def test_sizes_that_cannot_be_computed_with_are_told(tmp_path, monkeypatch):
    logs = write(tmp_path, rows_of())

    def failing(*given):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(hs.Bias, "refit_partitions", failing)
    with pytest.raises(hs.InputError, match=r"rewards from -.* features of sizes from"):
        fit(logs, hs.Bias())


def test_weights_count_rows_several_times(tmp_path):
    table = rows_of(20)
    counts = np.random.default_rng(0).integers(0, 4, len(table))
    weighted = table.append_column("w", pa.array(counts.astype(float)))
    repeated = table.take(np.repeat(np.arange(len(table)), counts))
    folder = tmp_path / "w"
    write(folder, weighted)
    logs = Logs(str(folder), Columns("task", "reward", "x*", weight="w"))
    found = fit(logs, hs.Bias())
    same(found.prior, fit(write(tmp_path / "r", repeated), hs.Bias()).prior)
    assert found.weightless == (counts == 0).sum()


def test_bad_arguments_are_refused_before_anything_is_read(tmp_path):
    logs = write(tmp_path, rows_of(5))
    for options, words in (
        ({"transfer": hs.Gaussian()}, "forced=False"),
        ({"transfer": "bias"}, "transfer must be"),
        ({"noise": -1.0}, "noise"),
        ({"memory": 1000}, "memory"),
        ({"workers": 0}, "workers"),
        ({"out": tmp_path / "no" / "such" / "file"}, "no folder"),
        ({"out": tmp_path}, "is a folder"),
        ({"cluster": "spark"}, "cluster must be"),
    ):
        with pytest.raises(hs.HeadstartError, match=words):
            fit(logs, **options)
    with pytest.raises(hs.InputError, match="logs must be"):
        fit("logs.parquet")


def test_words_become_transfers_and_amounts():
    assert parse_transfer("mixture:groups=3") == hs.Mixture(groups=3)
    assert parse_transfer("empirical_bayes:running=false") == hs.EmpiricalBayes(running=False)
    for text in ("pca", "bias:lamm=2", "bias:lam"):
        with pytest.raises(hs.InputError, match=r"transfer|option of bias"):
            parse_transfer(text)
    assert parse_bytes("512 MiB") == 512 << 20
    with pytest.raises(hs.InputError, match="memory"):
        parse_bytes("much")


def changed(table, name, row, value):
    """A table with one cell changed."""
    values = table[name].to_numpy().astype(float).copy()
    values[row] = value
    return table.set_column(table.schema.get_field_index(name), name, [pa.array(values)])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("name", "value"), [("x1", 1e16), ("x1", -1e12), ("reward", 1.2e29)])
def test_a_value_that_drowns_all_others_is_refused(tmp_path, intercept, name, value):
    logs = write(tmp_path / "logs", changed(rows_of(), name, 300, value), files=3)
    out = tmp_path / "prior"
    what = name if name == "reward" else f"feature {name}"
    with pytest.raises(
        hs.InputError, match=re.escape(f"{what} has values of about {abs(value):.1e}")
    ):
        fit(logs, out=out, intercept=intercept, workers=2)
    assert not out.exists()


def test_a_value_far_out_is_told(tmp_path):
    plain = fit(write(tmp_path / "plain", rows_of()), workers=1)
    assert plain.notes == ()
    table = changed(changed(rows_of(), "x1", 300, 1e5), "x2", 5, -2e5)
    found = fit(write(tmp_path / "far", table, files=3), workers=2)
    one, other = found.notes
    assert one.startswith("feature x1 has values of about 1.0e+05, ")
    assert other.startswith("feature x2 has values of about 2.0e+05, ")
    assert "a few rows outweigh all others" in one
    assert found.summary()["notes"] == [one, other]


def test_a_row_that_outweighs_all_others_is_told(tmp_path):
    table = rows_of()
    weights = np.ones(len(table))
    weights[7] = 1e12
    write(tmp_path / "logs", table.append_column("w", pa.array(weights)), files=2)
    logs = Logs(str(tmp_path / "logs"), Columns("task", "reward", "x*", weight="w"))
    assert fit(logs, workers=2).notes == ("a row of weight 1e+12 counts for more than all others",)
    (found,) = check(logs).findings
    assert found.text == "one row has 100 % of all weight, more than all others together"


def test_a_feature_that_counts_as_constant_is_told(tmp_path):
    table = rows_of()
    times = 1.7e9 + 60.0 * np.random.default_rng(0).uniform(size=len(table))
    found = fit(write(tmp_path / "logs", table.append_column("x9", pa.array(times))), workers=1)
    (note,) = found.notes
    assert note.startswith("feature x9 varies by less than a millionth of its mean (1.7e+09)")
    level = table.append_column("x9", pa.array(np.full(len(table), 1.7e9)))
    assert fit(write(tmp_path / "level", level), workers=1).notes == ()


def test_the_command_tells_what_it_found(tmp_path, capsys):
    from headstart import cli

    write(tmp_path / "logs", rows_of(20))
    out = tmp_path / "prior.headstart"
    words = ["fit", str(tmp_path / "logs"), "--task", "task", "--reward", "reward"]
    words += ["--features", "x*", "--out", str(out), "--workers", "1"]
    cli.app([*words, "--json"], standalone_mode=False)
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"] == 240
    assert summary["tasks"] == 20
    assert hs.load(out).report().closed_tasks == 20
    cli.app([*words, "--transfer", "bias", "--keep-tasks"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "of the regret of" in shown
    assert "prior.headstart" in shown
    assert len(hs.load(out)) == 20
    assert not list(tmp_path.glob("*.partial"))
