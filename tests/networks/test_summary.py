import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import (
    CompositionError,
    Container,
    Dense,
    Lift,
    LSTM,
    NonTrainable,
    Normalizer,
    normals,
    NormalTanhSampler,
    output,
    partition_trainable,
    PPOAdapter,
    RecurrentModule,
    Sequential,
    StatefulModule,
    Stateless,
    StatelessModule,
    StochasticModule,
    summary,
    with_override,
    with_recording,
)


class Noise(StochasticModule):
    def apply(self, draw, x, rollout_extras=None):
        return output(x + normals(draw, x.shape[-1]), batch=len(x))


class Residual(Container):
    """A container with a parameter of its own."""

    inner: StatefulModule
    gain: jax.Array

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return x + self.gain * call("inner", x)


class Leaky(RecurrentModule):
    """Has a module inside and is no container."""

    encoder: Dense
    in_features: int = eqx.field(static=True)

    def fresh_state(self, batch):
        return {"count": jnp.zeros(batch, jnp.int32), "h": jnp.zeros((batch, 2, 3))}

    def project(self, x):
        return self.encoder((), x).output

    def recur(self, state, projected):
        return state, projected


class Frozen(StatelessModule):
    """Calls a module that does not train."""

    target: NonTrainable

    def __call__(self, state, x, rollout_extras=None):
        return self.target.value((), x)


def policy_and_value(key):
    keys = jr.split(key, 4)
    action = Sequential([Dense(4, 2, key=keys[0]), Noise(), NormalTanhSampler(0.01)])
    return Sequential(
        [
            Normalizer(3),
            LSTM(3, 4, key=keys[1]),
            Residual(Lift(eqx.nn.MLP(4, 4, 400, 1, key=keys[2])), jnp.ones(())),
            Stateless(jnp.tanh),
            PPOAdapter(action, Dense(4, 1, key=keys[3])),
        ]
    )


TABLE = """\
module                              carry of an environment  trainable  not trainable
-------------------------------------------------------------------------------------
Sequential
  [0] Normalizer                                                                   15
  [1] LSTM(3, 4)                    2 x float32[4]                 128
  [2] Residual                                                       1
    .inner Lift(MLP(4, 4, 400, 1))                               3,604
  [3] Stateless(tanh)
  [4] PPOAdapter
    .action Sequential
      [0] Dense(4, 2)                                               10
      [1] Noise                     key
      [2] NormalTanhSampler         key
    .value Dense(4, 1)                                               5
-------------------------------------------------------------------------------------
total                                                            3,748             15
14.7 KiB of arrays
[4].action[1] (Noise) draws and has no inference flag: it stays noisy in evaluations"""


def test_the_table(getkey):
    # LSTM: (3 + 4) * 16 weights and 16 biases. MLP: 5 * 400 + 401 * 4. Normalizer: two
    # halves of a count and three numbers for each of three features.
    shown = summary(policy_and_value(getkey()))
    assert str(shown) == repr(shown) == TABLE
    assert max(map(len, TABLE.splitlines())) <= 88
    assert (shown.trainable, shown.non_trainable) == (3_748, 15)
    assert shown.bytes == 4 * (3_748 + 15)


def test_rows_can_be_read(getkey):
    rows = {row.place: row for row in summary(policy_and_value(getkey())).rows}
    assert rows[""].name == "Sequential" and rows[""].depth == 0
    noise = rows["[4].action[1]"]
    assert (noise.label, noise.name, noise.depth) == ("[1]", "Noise", 3)
    assert noise.stays_noisy and not rows["[4].action[2]"].stays_noisy
    assert rows["[1]"].carry == "2 x float32[4]"
    assert rows["[2].inner"].trainable == 3_604


def identity(x):
    return x


def test_what_stands_around_modules_is_a_note(getkey):
    network = policy_and_value(getkey())
    lesion = ft.partial(jnp.full_like, fill_value=jnp.zeros(4))
    changed = with_recording(
        with_override(network, {"[1]": lesion, "[4].action*": identity}), "[4]*"
    )
    rows, expected = summary(changed).rows, summary(network).rows
    marks = {row.place: row.marks for row in rows}
    overridden = ("[4].action", "[4].action[0]", "[4].action[1]", "[4].action[2]")
    assert marks == {
        row.place: (
            ("overridden",) * (row.place in ("[1]", *overridden))
            + ("recorded",) * row.place.startswith("[4]")
        )
        for row in expected
    }
    plain = [row._replace(marks=()) for row in rows]
    lstm = expected[2]
    assert plain == [*expected[:2], lstm._replace(non_trainable=4), *expected[3:]]
    lines = str(summary(changed)).splitlines()
    assert lines[4].startswith("  [1] LSTM(3, 4), overridden  ")
    assert lines[11].startswith("      [1] Noise, overridden, recorded  ")
    assert lines[-1] == TABLE.splitlines()[-1]


def test_shapes_are_enough(getkey):
    assert str(summary(eqx.filter_eval_shape(policy_and_value, getkey()))) == TABLE


def test_what_trains_is_what_the_optimiser_gets(getkey):
    network = policy_and_value(getkey())
    parameters, rest = partition_trainable(network)
    shown = summary(network)
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(half) if eqx.is_array(leaf))
        for half in (parameters, rest)
    ]
    assert [shown.trainable, shown.non_trainable] == sizes


def test_modules_inside_other_modules_have_rows_but_no_carry(getkey):
    root, inner = summary(Leaky(Dense(2, 3, key=getkey()), 2)).rows
    assert (root.carry, root.trainable) == ("int32, float32[2, 3]", 0)
    assert (inner.place, inner.carry, inner.trainable) == (".encoder", "", 9)


def test_a_frozen_module_does_not_train(getkey):
    shown = summary(Frozen(NonTrainable(Dense(2, 3, key=getkey()))))
    assert (shown.trainable, shown.non_trainable) == (0, 9)
    assert [row.non_trainable for row in shown.rows] == [0, 9]
    weights = NonTrainable([jnp.ones(4), NonTrainable({"a": jnp.ones(2)})])
    assert summary(Frozen(weights)).non_trainable == 6


def test_an_array_in_two_places_counts_twice(getkey):
    layer = Dense(2, 2, key=getkey())
    shown = summary(Sequential([layer, layer]))
    assert shown.trainable == 12
    assert [row.place for row in shown.rows] == ["", "[0]", "[1]"]


def test_all_kinds_of_arrays_count():
    class Mixed(StatelessModule):
        half: jax.Array
        integers: jax.Array
        numpy: np.ndarray

        def __call__(self, state, x, rollout_extras=None):
            return output(x, batch=len(x))

    shown = summary(
        Mixed(jnp.ones(3, jnp.bfloat16), jnp.ones(2, jnp.int8), np.ones(1, np.float32))
    )
    assert (shown.trainable, shown.non_trainable) == (4, 2)
    assert shown.bytes == 3 * 2 + 2 + 4
    assert "12 bytes of arrays" in str(shown)


def test_a_long_carry_is_cut_in_the_table_only():
    class Many(StatefulModule):
        def initialize_state(self, keys):
            return [jnp.zeros((len(keys), size)) for size in range(1, 9)]

        def reset_state(self, state):
            return state

        def __call__(self, state, x, rollout_extras=None):
            return output(x, batch=len(x), next_state=state)

    shown = summary(Many())
    assert shown.rows[0].carry.endswith("float32[7], float32[8]")
    assert "float32[1], float32[2], flo..." in str(shown)


def test_layers_are_described_by_their_sizes(getkey):
    key = getkey()
    described = {
        "Lift(Linear(2, 3))": Lift(eqx.nn.Linear(2, 3, key=key)),
        "Lift(Conv2d(2, 3, (4, 4)))": Lift(eqx.nn.Conv2d(2, 3, 4, stride=2, key=key)),
        "Lift(LayerNorm((5,)))": Lift(eqx.nn.LayerNorm(5)),
        "Lift(Dropout)": Lift(eqx.nn.Dropout(0.5)),
        "Lift(softmax)": Lift(jax.nn.softmax),
        "Stateless(relu)": Stateless(jax.nn.relu),
    }
    for name, module in described.items():
        assert summary(module).rows[0].name == name


def test_only_modules_have_a_summary():
    with pytest.raises(CompositionError, match="in summary .*expected a module, got"):
        summary(jnp.tanh)
