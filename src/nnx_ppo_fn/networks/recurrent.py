"""Recurrent layers: LSTM and GRU."""

import abc
from collections.abc import Callable
from typing import Any, final, Generic, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, Key

from .._custom_types import Keys
from .._keys import expect_keys
from .._tree import in_dtype_of, merge_time, select, split_time
from ._errors import expect_features, expect_rows_of
from ._products import affine, product, rows, zero_rows
from ._scan import scan
from .feedforward import Initializer
from .types import expect_pair, output, State, StatefulModuleOutput, UnrolledModule


Function: TypeAlias = Callable[[Array], Array]
Hidden: TypeAlias = Float[Array, "B hidden"]
LSTMState: TypeAlias = tuple[Float[Array, "B hidden"], Float[Array, "B hidden"]]


class RecurrentModule(
    UnrolledModule[State, Float[Array, "B in"], Float[Array, "B out"]], Generic[State]
):
    """A layer whose step is a projection of the input, then a recurrence.

    An author writes `fresh_state`, `project` and `recur`, and declares
    `in_features: int = eqx.field(static=True)`, the width that inputs must have. An
    unroll projects the inputs of all `T * B` rows at once and scans the recurrence
    alone.
    """

    in_features: eqx.AbstractVar[int]

    @abc.abstractmethod
    def fresh_state(self, batch: int) -> State:
        """The carry with which episodes begin, leaves `[batch, ...]`."""

    @abc.abstractmethod
    def project(self, x: Float[Array, "B in"]) -> Float[Array, "B projected"]:
        """What the input alone determines, row by row."""

    @abc.abstractmethod
    def recur(
        self, state: State, projected: Float[Array, "B projected"]
    ) -> tuple[State, Float[Array, "B out"]]:
        """One step of the recurrence.

        **Returns:**

        `(next_state, output)`.
        """

    @final
    def initialize_state(self, keys: Keys) -> State:
        """`fresh_state` for every environment; the keys are not used."""
        expect_keys(keys)
        return self.fresh_state(len(keys))

    @final
    def reset_state(self, state: State) -> State:
        """`fresh_state` for every environment, whatever the old carry."""
        return self.fresh_state(len(jtu.tree_leaves(state)[0]))

    @final
    def __call__(
        self,
        state: State,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[State, Float[Array, "B out"]]:
        """One step on `x`, `[B, in_features]`; the output has its floating dtype."""
        expect_features(x, self.in_features)
        expect_rows_of(state, x)
        next_state, value = _recurred(self, state, self.project(x))
        return output(
            in_dtype_of(x, value),
            batch=len(x),
            next_state=next_state,
            rollout_extras=rollout_extras,
        )

    @final
    def unroll(
        self,
        state: State,
        xs: Float[Array, "T B features"],
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[State, Float[Array, "T B out"]]:
        """Projects all inputs in one go, then scans what is truly sequential."""
        expect_features(xs, self.in_features, name="xs", axes="T, B")
        expect_rows_of(state, xs, name="xs", axes="T, B")
        shape = xs.shape[:2]
        projected = split_time(self.project(merge_time(xs)), shape)
        fresh = self.fresh_state(shape[1])

        def step(carry: State, inputs: tuple[Array, Array]) -> tuple[State, Array]:
            step_projected, first = inputs
            return _recurred(self, select(first, fresh, carry), step_projected)

        next_state, values = scan(step, state, (projected, is_first))
        return StatefulModuleOutput(
            next_state,
            in_dtype_of(xs, values),
            jnp.zeros(shape, jnp.float32),
            {},
            rollout_extras,
        )


def _recurred(
    module: RecurrentModule[Any], state: Any, projected: Any
) -> tuple[Any, Array]:
    """What `recur` returns, if it is what it should be."""
    result = module.recur(state, projected)
    return expect_pair(result, "recur", "(next_state, value)", state)


@final
class LSTM(RecurrentModule[LSTMState]):
    """Long short-term memory (Hochreiter & Schmidhuber 1997).

    ```
    i, f, g, o = split(x @ kernel + h @ recurrent_kernel + bias, 4)
    c' = gate_fn(f) * c + gate_fn(i) * activation_fn(g)
    h' = gate_fn(o) * activation_fn(c')
    ```

    The carry is `(h, c)`, each `[B, hidden_features]` in `float32`, and the output is
    `h'`. The gates stand in the order input, forget, cell, output, so the weights are
    those of `flax.nnx.OptimizedLSTMCell`: `dense_i.kernel`, `dense_h.kernel` and
    `dense_h.bias`. `initial_state` is the trained `(h, c)`, or `None` for zeros.
    """

    kernel: Float[Array, "in_features four_hidden"]
    recurrent_kernel: Float[Array, "hidden_features four_hidden"]
    bias: Float[Array, " four_hidden"]
    initial_state: tuple[Float[Array, " hidden"], Float[Array, " hidden"]] | None
    gate_fn: Function
    activation_fn: Function
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Key[Array, ""],
        trainable_initial_state: bool = False,
        gate_fn: Function = jax.nn.sigmoid,
        activation_fn: Function = jnp.tanh,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
        recurrent_kernel_init: Initializer = jax.nn.initializers.orthogonal(),
        bias_init: Initializer = jax.nn.initializers.zeros,
    ):
        """**Arguments:**

        - `in_features`, `hidden_features`: sizes of the input and of the memory.
        - `key`: for the initial weights.
        - `trainable_initial_state`: whether episodes begin with a carry that is
          learned, starting from 0, rather than with zeros.
        - `gate_fn`, `activation_fn`: the two nonlinearities.
        - `kernel_init`, `recurrent_kernel_init`, `bias_init`:
          `jax.nn.initializers`, called with a key, a shape and a dtype.
        """
        _expect_sizes("LSTM", in_features, hidden_features)
        initializers = (kernel_init, recurrent_kernel_init, bias_init)
        self.kernel, self.recurrent_kernel, self.bias = _weights(
            in_features, hidden_features, 4 * hidden_features, initializers, key
        )
        self.initial_state = None
        if trainable_initial_state:
            # Two arrays, or h and c would count as tied.
            h, c = jnp.zeros((2, hidden_features), jnp.float32)
            self.initial_state = h, c
        self.gate_fn = gate_fn
        self.activation_fn = activation_fn
        self.in_features = in_features
        self.hidden_features = hidden_features

    def fresh_state(self, batch: int) -> LSTMState:
        """`(h, c)`: the trained initial state, or zeros."""
        if self.initial_state is None:
            zeros = zero_rows(batch, self.hidden_features)
            return zeros, zeros
        hidden, cell = self.initial_state
        return rows(hidden, batch), rows(cell, batch)

    def project(self, x: Float[Array, "B in"]) -> Float[Array, "B four_hidden"]:
        """The input's part in the gates, with the bias."""
        return affine(x, self.kernel, self.bias)

    def recur(
        self, state: LSTMState, projected: Float[Array, "B four_hidden"]
    ) -> tuple[LSTMState, Hidden]:
        """One step of the memory."""
        hidden, cell = state
        gates = projected + product(hidden, self.recurrent_kernel)
        admit, keep, candidate, emit = jnp.split(gates, 4, axis=-1)
        kept = self.gate_fn(keep) * cell
        cell = kept + self.gate_fn(admit) * self.activation_fn(candidate)
        hidden = self.gate_fn(emit) * self.activation_fn(cell)
        return (hidden, cell), hidden


@final
class GRU(RecurrentModule[Hidden]):
    """Gated recurrent unit (Cho et al. 2014, arXiv 1406.1078).

    ```
    x_r, x_z, x_n = split(x @ kernel + bias, 3)
    h_r, h_z, h_n = split(h @ recurrent_kernel, 3)
    r, z = gate_fn(x_r + h_r), gate_fn(x_z + h_z)
    h' = (1 - z) * activation_fn(x_n + r * h_n) + z * h
    ```

    The carry is `h`, `[B, hidden_features]` in `float32`, and the output is `h'`. The
    gates stand in the order reset, update, new, so the weights are those of
    `flax.nnx.GRUCell`: `dense_i.kernel`, `dense_h.kernel` and `dense_i.bias`.
    `initial_state` is the trained `h`, or `None` for zeros.
    """

    kernel: Float[Array, "in_features three_hidden"]
    recurrent_kernel: Float[Array, "hidden_features three_hidden"]
    bias: Float[Array, " three_hidden"]
    initial_state: Float[Array, " hidden"] | None
    gate_fn: Function
    activation_fn: Function
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Key[Array, ""],
        trainable_initial_state: bool = False,
        gate_fn: Function = jax.nn.sigmoid,
        activation_fn: Function = jnp.tanh,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
        recurrent_kernel_init: Initializer = jax.nn.initializers.orthogonal(),
        bias_init: Initializer = jax.nn.initializers.zeros,
    ):
        """**Arguments:** those of `LSTM`."""
        _expect_sizes("GRU", in_features, hidden_features)
        initializers = (kernel_init, recurrent_kernel_init, bias_init)
        self.kernel, self.recurrent_kernel, self.bias = _weights(
            in_features, hidden_features, 3 * hidden_features, initializers, key
        )
        zeros = jnp.zeros(hidden_features, jnp.float32)
        self.initial_state = zeros if trainable_initial_state else None
        self.gate_fn = gate_fn
        self.activation_fn = activation_fn
        self.in_features = in_features
        self.hidden_features = hidden_features

    def fresh_state(self, batch: int) -> Hidden:
        """`h`: the trained initial state, or zeros."""
        if self.initial_state is None:
            return zero_rows(batch, self.hidden_features)
        return rows(self.initial_state, batch)

    def project(self, x: Float[Array, "B in"]) -> Float[Array, "B three_hidden"]:
        """The input's part in the gates, with the bias."""
        return affine(x, self.kernel, self.bias)

    def recur(
        self, state: Hidden, projected: Float[Array, "B three_hidden"]
    ) -> tuple[Hidden, Hidden]:
        """One step of the memory."""
        recurrent = product(state, self.recurrent_kernel)
        x_reset, x_update, x_new = jnp.split(projected, 3, axis=-1)
        h_reset, h_update, h_new = jnp.split(recurrent, 3, axis=-1)
        reset = self.gate_fn(x_reset + h_reset)
        update = self.gate_fn(x_update + h_update)
        new = self.activation_fn(x_new + reset * h_new)
        hidden = (1 - update) * new + update * state
        return hidden, hidden


def _expect_sizes(kind: str, in_features: int, hidden_features: int) -> None:
    if in_features < 1 or hidden_features < 1:
        raise ValueError(
            f"{kind} needs at least one input feature and one hidden feature, got "
            f"in_features={in_features}, hidden_features={hidden_features}"
        )


def _weights(
    in_features: int,
    hidden_features: int,
    width: int,
    initializers: tuple[Initializer, Initializer, Initializer],
    key: Key[Array, ""],
) -> tuple[Array, Array, Array]:
    """`(kernel, recurrent_kernel, bias)` with the gates side by side."""
    kernel_init, recurrent_kernel_init, bias_init = initializers
    kernel_key, recurrent_key, bias_key = jr.split(key, 3)
    return (
        kernel_init(kernel_key, (in_features, width), jnp.float32),
        recurrent_kernel_init(recurrent_key, (hidden_features, width), jnp.float32),
        bias_init(bias_key, (width,), jnp.float32),
    )
