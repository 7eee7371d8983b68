"""Values that nobody should pass: refused by name, and nothing has changed."""

import dataclasses
import fractions
import json
import os
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.bandit.reports.gain import expected_gain
from headstart.storage import tensor_file

FIELDS = [field.name for field in dataclasses.fields(hs.Choice)]
SPAN = np.timedelta64(3, "s")
TABLE = np.arange(9.0).reshape(3, 3) / 10
EVIDENCE = hs.Evidence.of(TABLE, [1.0, 2.0, 3.0])


def endless():
    """A list that holds itself."""
    several = [1.0]
    several.append(several)
    return several


class BytesPath(os.PathLike):
    def __fspath__(self):
        return b"a path in bytes"


@pytest.fixture
def bandit():
    return hs.Bandit(3, hs.Independent(), seed=1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: hs.Bandit(3, noise=SPAN), "noise"),
        (lambda: hs.Bandit(SPAN), "dim"),
        (lambda: hs.Bandit(3, seed=SPAN), "seed"),
        (lambda: hs.Bandit(3).task(SPAN), "id"),
        (lambda: hs.Bias(min_rounds=SPAN), "min_rounds"),
        (lambda: hs.UCB(SPAN), "radius"),
        (lambda: hs.Evidence.zero(3).add(np.ones(3), SPAN), "reward"),
        (lambda: hs.Bandit(3).task("a").choose([[1.0, 2.0, SPAN]]), "contexts"),
    ],
)
def test_spans_of_time_are_no_numbers(make, name):
    with pytest.raises(hs.InputError, match=name):
        make()


def test_more_draws_than_memory_holds_are_refused():
    with pytest.raises(hs.InputError, match="draws must be a whole number from 1 to 1048576"):
        hs.Thompson(draws=2**31)


def test_numbers_of_any_kind_are_kept_as_plain_ones():
    rule = hs.UCB(fractions.Fraction(1, 2), explore=np.longdouble("0.25"), horizon=np.int16(9))
    assert (type(rule.radius), type(rule.explore), type(rule.horizon)) == (float, float, int)
    assert (rule.radius, rule.explore, rule.horizon) == (0.5, 0.25, 9)


@pytest.mark.parametrize("value", [1, "yes", None, np.ones(3), float("nan")], ids=str)
def test_flags_are_booleans(value, bandit):
    for name, call in {
        "of_reward": lambda: bandit.task("a").predict(TABLE, of_reward=value),
        "forced": lambda: hs.Evidence.zero(3, forced=value),
        "paper": lambda: hs.linucb(3, paper=value),
        "intercept": lambda: hs.Bandit(3, intercept=value if value is not None else 0),
    }.items():
        with pytest.raises(hs.InputError, match=f"{name} must be True or False"):
            call()
    with pytest.raises(hs.InputError, match="forced"):
        hs.Evidence.zero(3).add(np.ones(3), 1.0, forced=value)


def test_lists_that_hold_themselves(bandit):
    task = bandit.task("a")
    for call in (task.choose, task.predict, lambda v: bandit.choose_many(["b", "c"], [TABLE, v])):
        with pytest.raises(hs.InputError, match="contexts"):
            call(endless())
    with pytest.raises(hs.InputError, match="mean"):
        hs.Prior(endless(), np.eye(2))


@pytest.mark.parametrize("dim", [2**31, 2**62])
def test_dimensions_that_no_machine_can_hold(dim, tmp_path):
    for make in (
        hs.Bandit,
        hs.linucb,
        hs.meta_ts,
        hs.Evidence.zero,
        hs.Prior.isotropic,
        lambda dim: hs.Evidence.unpack([1.0], dim),
        lambda dim: hs.write_evidence(tmp_path / "e", [], dim),
    ):
        with pytest.raises(hs.InputError, match="dim must be a whole number from 1 to 1048576"):
            make(dim)
    assert not list(tmp_path.iterdir())


class TestChoicesMadeByHand:
    @pytest.mark.parametrize(
        "change",
        [
            {"task": np.ones(3)},
            {"task": ["a"]},
            {"task": None},
            {"origin": np.ones(3)},
            {"origin": "key"},
            {"number": 2**62},
            {"number": SPAN},
            {"epoch": np.ones(3)},
        ],
        ids=str,
    )
    def test_are_refused_by_name(self, change, bandit, tmp_path):
        choice = bandit.task("a").choose(TABLE)
        bandit.save(tmp_path / "before")
        known = {name: getattr(choice, name) for name in FIELDS}
        for learn in (bandit.learn, bandit.task("a").learn):
            with pytest.raises(hs.InputError, match=f"choice.{next(iter(change))}"):
                learn(hs.Choice(**(known | change)), 1.0)
        bandit.save(tmp_path / "after")
        assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()

    def test_of_another_bandit_are_named_as_such(self, bandit):
        other = hs.Bandit(7, hs.Independent(), seed=1).task("a").choose(np.ones((2, 7)))
        known = {name: getattr(other, name) for name in FIELDS}
        with pytest.raises(hs.ChoiceError, match="another bandit"):
            bandit.learn(hs.Choice(**known), 1.0)


class TestJournals:
    @pytest.mark.parametrize(
        "change",
        [{"task": 3}, {"context": [1.0]}, {"context": np.array([[10**400]])}, {"epoch": -1}],
        ids=str,
    )
    def test_choices_made_by_hand_leave_no_line(self, change, bandit, tmp_path):
        choice = bandit.task("a").choose(TABLE)
        known = {name: getattr(choice, name) for name in FIELDS}
        odd = hs.Choice(**(known | change))
        with hs.Journal(tmp_path / "j") as j, pytest.raises(hs.ChoiceError, match="made by hand"):
            j.append(odd, 1.0)
        assert not (tmp_path / "j").read_bytes()

    def test_a_reward_that_was_damaged_is_not_learned(self, bandit, tmp_path):
        choice = bandit.task("a").choose(TABLE)
        with hs.Journal(tmp_path / "j") as journal:
            journal.append(choice, -1234.5)
        line = (tmp_path / "j").read_bytes()
        places = range(line.index(b"-1234.5"), len(line) - 2)
        for place in places:
            for bit in range(8):
                wounded = bytearray(line)
                wounded[place] ^= 1 << bit
                (tmp_path / "j").write_bytes(bytes(wounded))
                assert bandit.replay(tmp_path / "j").learned == 0, bytes(wounded)
        assert bandit.task("a").rounds == 0
        (tmp_path / "j").write_bytes(line)
        assert bandit.replay(tmp_path / "j").learned == 1

    def test_a_line_written_by_hand_needs_no_checksum(self, bandit, tmp_path):
        choice = bandit.task("a").choose(TABLE)
        (tmp_path / "j").write_text(json.dumps({"token": choice.token, "reward": 1.0}))
        assert bandit.replay(tmp_path / "j").learned == 1

    def test_a_seal_that_cannot_be_encoded(self, bandit, tmp_path):
        with hs.Journal(tmp_path / "j") as journal:
            bandit.task("a").observe(TABLE, [1.0, 2.0, 3.0], journal=journal)
        entry = json.loads((tmp_path / "j").read_text())
        (tmp_path / "j").write_text(json.dumps(entry | {"seal": "\ud800"}))
        assert list(bandit.replay(tmp_path / "j").refused) == [1]

    def test_settings_and_paths(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(hs.InputError, match="sync"):
            hs.Journal("j", sync=1)
        with pytest.raises(hs.FileError, match="cannot be appended to"):
            hs.Journal("a" * 2000)
        assert not os.listdir()


class TestPriorsAndBeliefs:
    @pytest.mark.parametrize("wrong", [0, None, np.ones(3), "prior"], ids=str)
    def test_of_something_else(self, wrong):
        with pytest.raises(hs.InputError, match="prior must be a Prior"):
            hs.Belief.of(wrong, EVIDENCE)
        with pytest.raises(hs.InputError, match="prior must be a Prior"):
            hs.Belief.start(wrong)
        with pytest.raises(hs.InputError, match="evidence must be Evidence"):
            hs.Belief.of(hs.Prior.isotropic(3), wrong)

    @pytest.mark.parametrize(
        "bias", [[[1.0, 2.0], [3.0]], endless(), "1", float("nan"), -1.0, np.ma.masked], ids=repr
    )
    def test_biases(self, bias):
        for name in ("bias", "printed_bias"):
            with pytest.raises(hs.InputError, match="bias"):
                hs.Prior(np.ones(3), np.eye(3), **{name: bias})

    def test_numbers_whose_squares_overflow(self):
        with pytest.raises(hs.InputError, match="root must be below"):
            hs.Prior(np.ones(3), 1e200 * np.eye(3))
        with pytest.raises(hs.InputError, match="mean must be below"):
            hs.Prior(np.full(3, -1e200), np.eye(3))
        for make in (hs.Oracle.gaussian, hs.Prior.gaussian):
            with pytest.raises(hs.InputError, match="covariance must be below"):
                make(np.ones(3), 1e300 * np.eye(3))
        with pytest.raises(hs.InputError, match="mean must be below"):
            hs.Oracle.gaussian(np.full(3, 1e200), np.eye(3))


def test_grams_that_are_no_sums():
    with pytest.raises(hs.InputError, match="gram"):
        hs.Evidence(-np.eye(3), np.ones(3), 3.0, 9.0)
    odd = hs.Evidence(2.0 * np.eye(3) - 1.0, np.ones(3), 3.0, 9.0)  # an eigenvalue is -1
    with pytest.raises(hs.InputError, match="gram"):
        odd.ridge(1.0)


@pytest.mark.parametrize(
    "path",
    [BytesPath(), "\ud800", "a\0b", b"a", 3],
    ids=["bytes from a path", "surrogate", "null", "bytes", "number"],
)
def test_paths(path, bandit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        bandit.save,
        hs.load,
        hs.EvidenceFile,
        lambda path: hs.write_evidence(path, [("a", EVIDENCE)], 3),
    ):
        with pytest.raises(hs.InputError, match="path"):
            call(path)
    assert not os.listdir()


def test_arrays_of_no_axes_hold_nothing(tmp_path):
    for value in (np.array(1.0), np.ma.masked, np.array(None)):
        with pytest.raises(hs.InputError, match="items"):
            hs.write_evidence(tmp_path / "e", value, 3)
        with pytest.raises(hs.InputError, match="paths"):
            hs.merge_evidence(value, tmp_path / "e")
        many = hs.Evidence.of(np.ones((1, 2, 3)), np.ones((1, 2)))
        with pytest.raises(hs.InputError, match="items"):
            hs.write_evidence(tmp_path / "e", [(value, many)], 3)
    assert not list(tmp_path.iterdir())


class TestArchivesWhoseIdsDifferFromTheirLookup:
    """Resealed: every digest is right."""

    @pytest.fixture
    def path(self, tmp_path) -> Path:
        path = tmp_path / "e"
        hs.write_evidence(path, [(f"t{n}", EVIDENCE.discount(1.0 + n)) for n in range(4)], 3)
        return path

    def test_one_id_twice(self, path):
        reseal(path, ids=["t0", "t1", "t2", "t0"])
        for read in (
            lambda file: list(file.items()),
            lambda file: list(file.batches()),
            lambda file: file["t0"],
            lambda file: file.at(3),
        ):
            with hs.EvidenceFile(path) as file, pytest.raises(hs.FileError, match="hashes of ids"):
                read(file)
        with pytest.raises(hs.FileError, match="hashes of ids"):
            list(hs.read_evidence(path))

    def test_ids_in_another_order(self, path):
        reseal(path, ids=["t1", "t0", "t2", "t3"])
        with hs.EvidenceFile(path) as file, pytest.raises(hs.FileError, match="hashes of ids"):
            file["t0"]


def reseal(path: Path, ids: list[str]) -> None:
    """Give an archive of one block other ids of the same length, and right digests."""
    from headstart.storage.archive import layout

    content = path.read_bytes()
    text = layout.text_of(ids)
    with hs.EvidenceFile(path) as file:
        block, opening = file._index[0], content[: file._index[0].start]
        start = block.ids_start(file._layout)
        assert len(text) == block.text
        counts = layout.COUNTS.pack(1, len(ids), file._lookup_digest)
        lookup = content[start + block.text : file._size - layout.CLOSING.size - layout.INDEX.size]
    entries = layout.INDEX.pack(*block._replace(ids_digest=layout.digest(text)))
    sealed = layout.digest(opening, entries, counts)
    body = content[block.start : start] + text + lookup
    path.write_bytes(opening + body + entries + counts + sealed + layout.END)


COUNTED = ["past.count", "past.precision", "task_count", "fit.dof", "tasks.rounds"]


@pytest.mark.parametrize("name", COUNTED)
def test_saved_states_that_count_less_than_nothing(name, tmp_path):
    """Resealed: the digest is right."""
    bandit, rng = hs.Bandit(3, hs.EmpiricalBayes(), seed=1), np.random.default_rng(1)
    for number in range(3):
        task = bandit.task(number)
        for _ in range(5):
            task.learn(task.choose(rng.normal(size=(3, 3))), rng.normal())
        task.close()
    bandit.save(tmp_path / "b")
    header, arrays = tensor_file.read(tmp_path / "b")
    if name in ("past.count", "task_count"):
        tensor_file.write(tmp_path / "c", header, arrays | {f"state.{name}": np.array(2.0**62)})
        with pytest.raises(hs.FileError, match=f"state.{name} must be 1e.15 tasks at most"):
            hs.load(tmp_path / "c")
    arrays[f"state.{name}"] = np.full_like(arrays[f"state.{name}"], -5.0)
    tensor_file.write(tmp_path / "b", header, arrays)
    with pytest.raises(hs.FileError, match=f"state.{name} must be 0 or more"):
        hs.load(tmp_path / "b")


@pytest.mark.parametrize(
    ("transfer", "name"),
    [(hs.Bias(), "estimates.noise.given_noise"), (hs.EmpiricalBayes(), "known_noise")],
)
def test_saved_noise_whose_square_vanishes(transfer, name, tmp_path):
    """Refused as an argument, and from a file."""
    hs.Bandit(3, transfer, seed=1).save(tmp_path / "b")
    header, arrays = tensor_file.read(tmp_path / "b")
    arrays[f"state.{name}"] = np.full_like(arrays[f"state.{name}"], 5e-324)
    tensor_file.write(tmp_path / "b", header, arrays)
    with pytest.raises(hs.FileError, match=f"state.{name} must be 0, or 1e-60 or more"):
        hs.load(tmp_path / "b")


@pytest.mark.parametrize(
    "transfer", [hs.Subspace(), hs.Bias(), hs.EmpiricalBayes(), hs.Mixture()], ids=repr
)
def test_saved_states_whose_matrices_are_not_symmetric(transfer, tmp_path):
    """Every square matrix of a state that is symmetric is checked, whatever its name."""
    bandit, rng = hs.Bandit(4, transfer, seed=1, intercept=True), np.random.default_rng(1)
    for number in range(8):
        task = bandit.task(number)
        for _ in range(9):
            task.learn(task.choose(rng.normal(size=(3, 4))), rng.normal())
        task.close()
    bandit.save(tmp_path / "b")
    header, arrays = tensor_file.read(tmp_path / "b")
    matrices = {
        name: array
        for name, array in arrays.items()
        if name.startswith("state.") and array.shape[-2:] == (5, 5) and array.any()
        if np.allclose(array, array.swapaxes(-1, -2)) and not name.endswith("roots")  # need not be
    }
    largest = max(np.abs(array).max() for array in matrices.values())
    for name, array in matrices.items():
        damaged = array.copy()
        damaged[..., 0, -1] += largest
        tensor_file.write(tmp_path / "c", header, arrays | {name: damaged})
        with pytest.raises(hs.FileError, match=f"{name} must be symmetric"):
            hs.load(tmp_path / "c")


def test_the_gain_where_no_feature_varies():
    """What rounding leaves must not be taken for a difference between arms."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        context = np.array([rng.normal(), 1.0])
        prior = hs.Prior(rng.normal(size=2), rng.normal(size=(2, 2)))
        gain = expected_gain(prior, np.outer(context, context), 1.0, 1, intercept=1)
        assert (gain.saved, gain.low, gain.high) == (0.0, 0.0, 0.0)
        assert "0 %" in str(gain)


@pytest.mark.parametrize("k", [None, 3])
def test_bounds_that_cannot_hold_are_refused_before_anything_changes(k, tmp_path):
    bandit = hs.Bandit(3, hs.Bias(), hs.UCB(probability=(0.1, 0.7)), seed=1)
    tasks = bandit.task("a"), bandit.task("b")
    tasks[0].observe(TABLE, [1.0, 2.0, 3.0])
    tasks[0].close()
    bandit.save(tmp_path / "before")
    for task in tasks:
        with pytest.raises(hs.InputError, match=r"probability=\(0.1, 0.7\) cannot hold for 1 arm"):
            task.choose(TABLE[: k or 1], k=k)
    bandit.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.parametrize("reward", [1e-59, 1.0, 1e59])
@pytest.mark.parametrize(
    ("make", "size"),
    [(hs.Bandit, size) for size in (1e-45, 1e-65, 1e-100, 1e-150, 1e-300)]
    + [(hs.meta_ts, size) for size in (1e-100, 1e-150, 1e-300)],
)
def test_tiny_contexts_are_no_trouble(make, size, reward, tmp_path):
    """Coefficients are rewards over contexts, and both they and their squares are stored."""
    rng = np.random.default_rng(0)
    bandit = make(3, seed=0)
    for n in range(8):
        task = bandit.task(f"{n}")
        for _ in range(6):
            task.learn(task.choose(size * rng.normal(size=(4, 3))), reward * rng.normal())
        if n < 7:
            task.close()
    bandit.save(tmp_path / "it.headstart")
    again = hs.load(tmp_path / "it.headstart")
    table = size * rng.normal(size=(4, 3))
    for name in ("7", "new"):
        assert again.task(name).choose(table).arm == bandit.task(name).choose(table).arm


class TestUsualSizes:
    @pytest.mark.parametrize("value", [0.1, 0.3, 1.1, 1e-7, 1.7e9])
    @pytest.mark.parametrize("arms", [1, 3, 7, 10])
    def test_a_feature_that_was_constant_may_vary(self, value, arms):
        """The mean of equal values may differ from them by rounding."""
        task = hs.Bandit(2, hs.Independent(), seed=1).task("a")
        rng = np.random.default_rng(arms)
        for _ in range(9):
            task.choose(np.column_stack([np.full(arms, value), rng.normal(size=arms)]))
        task.choose([[50.0 * value, 1.0], [-900.0 * value, 1.0]])

    @pytest.mark.parametrize("tiny", [5e-324, 1e-300, 1e-30, 1e-12])
    @pytest.mark.parametrize("when", [0, 1, 4, 20])
    def test_a_tiny_value_makes_no_others_large(self, tiny, when):
        task = hs.Bandit(1, hs.Independent(), seed=1).task("a")
        for turn in range(40):
            value = tiny if turn == when else 1.0 + turn / 100
            task.learn(task.choose([[value]]), 1.0)
        assert task.rounds == 40
        with pytest.raises(hs.InputError, match="within a million times the usual size"):
            task.choose([[1e9]])
