"""What a type checker knows of modules, without a word from their user.

pyright checks this file, and a test runs it with `assert_type` looking at the values.
"""

from typing import Any, assert_type, final

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    BernoulliSampler,
    BetaSampler,
    CategoricalSampler,
    Concat,
    Delay,
    Dense,
    Dropout,
    EpisodeKeys,
    Filter,
    GaussianNoise,
    GRU,
    LRU,
    LSTM,
    make_mlp,
    Map,
    Merge,
    MultiCategoricalSampler,
    normals,
    NormalSampler,
    NormalTanhSampler,
    output,
    Parallel,
    PPOAdapter,
    PPONetworkOutput,
    SampledAction,
    Sequential,
    Splitter,
    StatefulModule,
    StatefulModuleOutput,
    Stateless,
    StochasticModule,
    unroll,
    VariationalBottleneck,
    WindowedAttention,
)
from nnx_ppo_fn.networks.attention import AttentionState


key = jr.key(0)
keys = jr.split(key, 5)
x = jnp.ones((5, 4))
xs = jnp.ones((2, 5, 4))
is_first = jnp.zeros((2, 5), bool)


# Layers.

dense = Dense(4, 4, key=key)
assert_type(dense((), x).output, Array)
assert_type(make_mlp([4, 3, 2], key=key)(((), ()), x).output, Array)

lstm = LSTM(4, 2, key=key)
memory = lstm.initialize_state(keys)
assert_type(memory, tuple[Array, Array])
assert_type(lstm(memory, x).output, Array)
assert_type(lstm(memory, x).next_state, tuple[Array, Array])
assert_type(lstm.reset_state(memory), tuple[Array, Array])
assert_type(lstm.update_statistics(None), LSTM)
assert_type(unroll(lstm, memory, xs, is_first).output, Array)
assert_type(unroll(lstm, memory, xs, is_first).next_state, tuple[Array, Array])

gru = GRU(4, 2, key=key)
assert_type(gru(gru.initialize_state(keys), x).next_state, Array)
lru = LRU(4, 2, key=key)
assert_type(lru(lru.initialize_state(keys), x).next_state, tuple[Array, Array])
assert_type(unroll(lru, lru.initialize_state(keys), xs, is_first).output, Array)
attention = WindowedAttention(4, 2, key=key)
assert_type(attention(attention.initialize_state(keys), x).output, Array)
assert_type(attention.initialize_state(keys), AttentionState)


# Layers that draw.

assert_type(GaussianNoise(0.1)(keys, x).output, Array)
assert_type(GaussianNoise(0.1)(keys, x).next_state, Array)
assert_type(BernoulliGate(4)(keys, x).output, Array)
assert_type(VariationalBottleneck(2)(keys, x).output, Array)
dropout = Dropout(0.1, "episode")
assert_type(dropout.initialize_state(keys), EpisodeKeys)
assert_type(dropout(EpisodeKeys.of(keys), x).output, Array)
smooth = AR1VariationalBottleneck(2)
assert_type(smooth(smooth.initialize_state(keys), x).output, Array)


# Samplers.

assert_type(NormalTanhSampler(0.1)(keys, x).output, SampledAction)
assert_type(NormalSampler(0.1)(keys, x).output, SampledAction)
assert_type(BetaSampler(0.1)(keys, x).output, SampledAction)
assert_type(CategoricalSampler(0.1)(keys, x).output, SampledAction)
assert_type(MultiCategoricalSampler(0.1, (2, 2))(keys, x).output, SampledAction)
assert_type(BernoulliSampler(0.1)(keys, x).output, SampledAction)


# Containers. What a `dict` holds by name is beyond Python's types.

policy = Sequential((dense, NormalTanhSampler(0.1)))
assert_type(policy, Sequential[Array, SampledAction])
assert_type(policy(policy.initialize_state(keys), x).output, SampledAction)
assert_type(
    unroll(policy, policy.initialize_state(keys), xs, is_first).output, SampledAction
)
network = PPOAdapter(action=policy, value=Dense(4, 1, key=key))
assert_type(network(network.initialize_state(keys), x).output, PPONetworkOutput)
whole = Sequential((dense, network))
assert_type(whole(whole.initialize_state(keys), x).output, PPONetworkOutput)
of_a_list: Any = Sequential([dense])
assert_type(of_a_list(((),), x).output, Any)

both = Parallel(one=dense, other=dense)
nothing: Any = {"one": (), "other": ()}
assert_type(both(nothing, x).output, dict[str, Any])
parts = {"one": x, "other": x}
assert_type(Map(one=dense, other=dense)(nothing, parts).output, dict[str, Any])
assert_type(Concat(one=dense, other=dense)(nothing, parts).output, Array)
merged = Merge(one=both)
assert_type(merged({"one": nothing}, x).output, dict[str, Any])
assert_type(Splitter(one=1, other=3)((), x).output, dict[str, Any])
assert_type(Filter({"first": "one"})((), parts).output, dict[str, Any])


# What comes out depends on what went in, or on a function, and is not followed: a last
# layer of one's own says what it returns.

assert_type(Stateless(jnp.tanh)((), x).output, Any)
delay = Delay(jnp.ones(4), 2)
assert_type(delay(delay.initialize_state(keys), x).output, Any)
smoothed = Sequential((dense, Stateless(jnp.tanh), Dense(4, 2, key=key)))
assert_type(smoothed, Sequential[Array, Array])


# A module of one's own.


@final
class Synapse(StochasticModule[Float[Array, "B features"], Float[Array, "B features"]]):
    """Noise on every signal."""

    strength: float = 0.2
    size: int = eqx.field(default=4, static=True)

    def apply(
        self,
        draw: Array,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Float[Array, "B {self.size}"]]:
        """`x` with noise."""
        noise = self.strength * normals(draw, self.size)
        return output(x * (1 + noise), batch=len(x))


own = Synapse(strength=0.1)
assert_type(own(keys, x).output, Array)
assert_type(Sequential((dense, own)), Sequential[Array, Array])
modules: list[StatefulModule[Any, Any, Array]] = [own, dense, Sequential((dense, own))]
