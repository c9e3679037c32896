"""Recurrent layers that are linear in their memory, and so parallel in time."""

import abc
import math
from typing import Any, final, Generic, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, Key

from .._custom_types import Keys
from .._expect import as_count
from .._keys import expect_keys
from .._tree import in_dtype_of, merge_time, split_time, tree_map
from ._errors import expect_features, expect_rows_of
from ._linear_scan import plus, recurrence, times
from ._products import affine, product, rows, zero_rows
from .feedforward import Initializer
from .types import expect_pair, output, State, StatefulModuleOutput, UnrolledModule


Hidden: TypeAlias = Float[Array, "B hidden"]
Complex: TypeAlias = tuple[Float[Array, "B hidden"], Float[Array, "B hidden"]]
"""Complex numbers: their real and their imaginary parts."""
Shared: TypeAlias = tuple[Float[Array, "#B hidden"], Float[Array, "#B hidden"]]
"""The same, in a single row where they do not depend on the input."""


class LinearRecurrentModule(
    UnrolledModule[State, Float[Array, "B in"], Float[Array, "B out"]], Generic[State]
):
    """A layer whose memory is a linear recurrence: parallel in time.

    ```
    next_state = decay * state + drive
    ```

    Here `decay` and `drive` depend on the input but not on the memory. An author
    writes `fresh_state`, `coefficients` and `read`, and declares
    `in_features: int = eqx.field(static=True)`, the width that inputs must have. The
    memory is an array `[B, n]`, or a pair of them: the real and the imaginary part of
    complex numbers, and so are `decay` and `drive`.

    An unroll of `T` steps takes the coefficients of all `T * B` rows at once, goes
    through time by an associative scan of depth `2 * log2(T)` with resets inside, and
    reads all rows at once. The scan needs about twice the memory of the states,
    `[T, B, n]`, and as much again for a `decay` that is not shared. For the gradient,
    which is a scan backwards, `decay` and the states are kept, and nothing of what is
    in between. On a CPU, where the rows of one step keep all cores busy, both scans go
    step by step, which is half the work. Only reverse-mode derivatives are defined.
    """

    in_features: eqx.AbstractVar[int]

    @abc.abstractmethod
    def fresh_state(self, batch: int) -> State:
        """The carry with which episodes begin, leaves `[batch, n]`."""

    @abc.abstractmethod
    def coefficients(self, x: Float[Array, "B in"]) -> tuple[State, State]:
        """`(decay, drive)`, row by row, each built like the carry.

        The leaves of `decay` are `[B, n]`, or `[1, n]` where it does not depend on the
        input, and no larger than 1.
        """

    @abc.abstractmethod
    def read(self, state: State, x: Float[Array, "B in"]) -> Float[Array, "B out"]:
        """The output, row by row, from the new memory and the input."""

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
        decay, drive = _coefficients(self, state, x)
        next_state = plus(times(decay, state), drive)
        return output(
            in_dtype_of(x, self.read(next_state, x)),
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
        """All steps at once, by an associative scan."""
        expect_features(xs, self.in_features, name="xs", axes="T, B")
        expect_rows_of(state, xs, name="xs", axes="T, B")
        shape = xs.shape[:2]
        x = merge_time(xs)
        decay, drive = _coefficients(self, state, x)

        def over_time(leaf: Array) -> Array:
            if len(leaf) == len(x):
                return split_time(leaf, shape)
            return jnp.broadcast_to(leaf, (shape[0], 1, leaf.shape[-1]))

        states, next_state = recurrence(
            tree_map(over_time, decay),
            split_time(drive, shape),
            is_first,
            state,
            self.fresh_state(shape[1]),
        )
        values = in_dtype_of(xs, self.read(merge_time(states), x))
        return StatefulModuleOutput(
            next_state,
            split_time(values, shape),
            jnp.zeros(shape, jnp.float32),
            {},
            rollout_extras,
        )


def _coefficients(
    module: LinearRecurrentModule[Any], state: Any, x: Array
) -> tuple[Any, Any]:
    """What `coefficients` returns, if it is what it should be."""
    pair = module.coefficients(x)
    return expect_pair(pair, "coefficients", "(decay, drive)", state)


@final
class LRU(LinearRecurrentModule[Complex]):
    """Linear recurrent unit (Orvieto et al. 2023, arXiv 2303.06349).

    ```
    decay = exp(-exp(nu_log) + i * exp(theta_log))
    h' = decay * h + exp(gamma_log) * (x @ kernel)
    y = real(h' @ output_kernel) + x @ skip_kernel
    ```

    Each of the `hidden_features` memories is a complex number that turns by a phase at
    every step and shrinks, which the parametrisation sees to: `abs(decay)` is below 1.
    `kernel` holds the real parts of the weights, then the imaginary ones, and
    `output_kernel` those of the real and of the imaginary parts of the memory. The
    carry is `(real, imag)`, each `[B, hidden_features]` in `float32`; the output is
    linear in it, so a nonlinear layer should follow. `initial_state` is the trained
    `(real, imag)`, or `None` for zeros.

    At the start the decays are spread evenly over a ring in the complex plane, and
    `exp(gamma_log)` is `sqrt(1 - abs(decay)**2)`, so that slow memories do not
    outgrow fast ones. The paper's skip is one weight per feature; here it is a matrix,
    since an input need not be as wide as the output.
    """

    nu_log: Float[Array, " hidden"]
    theta_log: Float[Array, " hidden"]
    gamma_log: Float[Array, " hidden"]
    kernel: Float[Array, "in_features two_hidden"]
    output_kernel: Float[Array, "two_hidden out_features"]
    skip_kernel: Float[Array, "in_features out_features"]
    initial_state: tuple[Float[Array, " hidden"], Float[Array, " hidden"]] | None
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Key[Array, ""],
        out_features: int | None = None,
        trainable_initial_state: bool = False,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
    ):
        """**Arguments:**

        - `in_features`, `hidden_features`: sizes of the input and of the memory.
        - `key`: for the initial weights.
        - `out_features`: size of the output; that of the memory by default.
        - `trainable_initial_state`: whether episodes begin with a carry that is
          learned, starting from 0, rather than with zeros.
        - `r_min`, `r_max`: the ring's radii, between 0 and 1. A memory of radius `r`
          forgets in about `1 / (1 - r)` steps.
        - `max_phase`: the largest phase by which a memory turns in a step, in radians.
        - `kernel_init`: a `jax.nn.initializers` for the complex weights as a whole:
          their two parts share the variance.

        **Raises:**

        `TypeError` for a size that is no integer, and `ValueError` for a size below 1
        and for a ring that is none.
        """
        in_features = as_count(in_features, name="in_features")
        hidden = as_count(hidden_features, name="hidden_features")
        out = hidden if out_features is None else out_features
        out = as_count(out, name="out_features")
        if not (0 <= r_min <= r_max <= 1 and r_min < 1 and r_max > 0):
            raise ValueError(
                "expected a ring with 0 <= r_min <= r_max <= 1, r_min below 1 and "
                f"r_max above 0, got r_min={r_min}, r_max={r_max}"
            )
        if not 0 < max_phase <= 2 * math.pi:
            raise ValueError(
                f"max_phase must be above 0 and at most 2 pi, got {max_phase}"
            )
        radius_key, phase_key, kernel_key, output_key, skip_key = jr.split(key, 5)
        # Away from 0 and 1, at which a logarithm would be infinite.
        share = jr.uniform(radius_key, (hidden,), jnp.float32, _EDGE, 1 - _EDGE)
        lost = (1 - r_max**2) + share * (r_max**2 - r_min**2)
        lost = jnp.minimum(lost, 1 - _EDGE)
        share = jr.uniform(phase_key, (hidden,), jnp.float32, _EDGE, 1.0)
        self.nu_log = jnp.log(-0.5 * jnp.log1p(-lost))
        self.theta_log = jnp.log(max_phase * share)
        self.gamma_log = 0.5 * jnp.log(lost)
        kernel = kernel_init(kernel_key, (in_features, 2 * hidden), jnp.float32)
        self.kernel = kernel / math.sqrt(2)
        self.output_kernel = _OUTPUT(output_key, (2 * hidden, out), jnp.float32)
        self.skip_kernel = _SKIP(skip_key, (in_features, out), jnp.float32)
        self.initial_state = None
        if trainable_initial_state:
            # Two arrays, or the two parts would count as tied.
            real, imag = jnp.zeros((2, hidden), jnp.float32)
            self.initial_state = real, imag
        self.in_features = in_features
        self.hidden_features = hidden
        self.out_features = out

    def fresh_state(self, batch: int) -> Complex:
        """`(real, imag)`: the trained initial state, or zeros."""
        if self.initial_state is None:
            zero = zero_rows(batch, self.hidden_features)
            return zero, zero
        real, imag = self.initial_state
        return rows(real, batch), rows(imag, batch)

    def coefficients(self, x: Float[Array, "B in"]) -> tuple[Shared, Complex]:
        """The decay, the same for all rows, and the normalised projection."""
        nu, theta, gamma = (
            jnp.exp(leaf.astype(jnp.float32))[None]
            for leaf in (self.nu_log, self.theta_log, self.gamma_log)
        )
        radius = jnp.exp(-nu)
        real, imag = jnp.split(product(x, self.kernel), 2, axis=-1)
        return (
            (radius * jnp.cos(theta), radius * jnp.sin(theta)),
            (gamma * real, gamma * imag),
        )

    def read(self, state: Complex, x: Float[Array, "B in"]) -> Float[Array, "B out"]:
        """The real part of the projected memory, and the input's."""
        memory = jnp.concatenate(state, axis=-1)
        return product(memory, self.output_kernel) + product(x, self.skip_kernel)


@final
class MinGRU(LinearRecurrentModule[Hidden]):
    """Minimal gated recurrent unit (Feng et al. 2024, arXiv 2410.01201).

    ```
    x_z, x_h = split(x @ kernel + bias, 2)
    z = sigmoid(x_z)
    h' = (1 - z) * h + z * x_h
    ```

    A `GRU` whose gate and candidate do not look at the memory. The carry is `h`,
    `[B, hidden_features]` in `float32`, and the output is `h'`. `initial_state` is the
    trained `h`, or `None` for zeros.

    This is the paper's first form, without its detour over logarithms. That one is for
    scans which divide by products of many decays, and needs positive candidates, which
    an activation of the paper's own makes. The scan here only ever multiplies by
    decays, which are below 1, so that nothing can overflow, and candidates may have
    either sign.
    """

    kernel: Float[Array, "in_features two_hidden"]
    bias: Float[Array, " two_hidden"]
    initial_state: Float[Array, " hidden"] | None
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Key[Array, ""],
        trainable_initial_state: bool = False,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
        bias_init: Initializer = jax.nn.initializers.zeros,
    ):
        """**Arguments:**

        - `in_features`, `hidden_features`: sizes of the input and of the memory.
        - `key`: for the initial weights.
        - `trainable_initial_state`: whether episodes begin with a carry that is
          learned, starting from 0, rather than with zeros.
        - `kernel_init`, `bias_init`: `jax.nn.initializers`, called with a key, a shape
          and a dtype. The gates' half of the bias comes first; a negative one makes
          memories that are slow from the start.

        **Raises:**

        `TypeError` for a size that is no integer, and `ValueError` for one below 1.
        """
        in_features = as_count(in_features, name="in_features")
        hidden = as_count(hidden_features, name="hidden_features")
        kernel_key, bias_key = jr.split(key)
        self.kernel = kernel_init(kernel_key, (in_features, 2 * hidden), jnp.float32)
        self.bias = bias_init(bias_key, (2 * hidden,), jnp.float32)
        zero = jnp.zeros(hidden, jnp.float32)
        self.initial_state = zero if trainable_initial_state else None
        self.in_features = in_features
        self.hidden_features = hidden

    def fresh_state(self, batch: int) -> Hidden:
        """`h`: the trained initial state, or zeros."""
        if self.initial_state is None:
            return zero_rows(batch, self.hidden_features)
        return rows(self.initial_state, batch)

    def coefficients(self, x: Float[Array, "B in"]) -> tuple[Hidden, Hidden]:
        """The share of the memory that stays, and what comes in."""
        gate, candidate = jnp.split(affine(x, self.kernel, self.bias), 2, axis=-1)
        return jax.nn.sigmoid(-gate), jax.nn.sigmoid(gate) * candidate

    def read(self, state: Hidden, x: Float[Array, "B in"]) -> Hidden:
        """The memory itself."""
        return state


_EDGE = 1e-6

# With these, inputs of variance 1 make a memory and an output of variance 1.
_OUTPUT = jax.nn.initializers.variance_scaling(2.0, "fan_in", "normal")
_SKIP = jax.nn.initializers.lecun_normal()
