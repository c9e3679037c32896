"""Networks that most people want, in one call."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .._expect import expect_flags
from .._keys import derive
from .._suggest import did_you_mean
from ._border import border_of
from .adapter import PPOAdapter
from .attention import WindowedAttention
from .containers import Sequential
from .feedforward import Dense, Initializer
from .linear_recurrent import LRU, MinGRU
from .recurrent import GRU, LSTM
from .sampling_layers import CategoricalSampler, NormalTanhSampler
from .types import AnyModule, PPONetworkOutput
from .variational import VariationalBottleneck


Activation: TypeAlias = Callable[[Array], Array]

if TYPE_CHECKING:
    Cell: TypeAlias = Literal["lstm", "gru", "lru", "min_gru", "attention"]
else:
    # At run time a message that lists the names is worth more than a type.
    Cell: TypeAlias = str

_ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "swish": jax.nn.swish,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
}
_CELLS: dict[str, Callable[..., AnyModule]] = {
    "lstm": LSTM,
    "gru": GRU,
    "lru": LRU,
    "min_gru": MinGRU,
    "attention": WindowedAttention,
}


def make_mlp_layers(
    sizes: Sequence[int],
    *,
    key: Key[Array, ""],
    activation: Activation | str = jax.nn.relu,
    activation_last_layer: bool = True,
    **dense_options: Any,
) -> list[Dense]:
    """The layers of a multi-layer perceptron, to stand among others in a `Sequential`.

    **Arguments:**

    - `sizes`: of the input, of every hidden layer and of the output.
    - `key`: for the initial weights.
    - `activation`: a function, or one of `"relu"`, `"tanh"`, `"swish"`, `"elu"`,
      `"gelu"`.
    - `activation_last_layer`: whether the last layer is followed by the activation.
    - `dense_options`: passed on to every `Dense`.

    **Returns:**

    One layer fewer than there are sizes.

    **Raises:**

    `ValueError` for an unknown name, or where `sizes` is empty.
    """
    if not sizes:
        raise ValueError("sizes starts with the size of the input, got no sizes")
    function = _named("activation", activation, _ACTIVATIONS)
    last = len(sizes) - 2
    return [
        Dense(
            in_features,
            out_features,
            key=subkey,
            activation=function if index < last or activation_last_layer else None,
            **dense_options,
        )
        for index, (in_features, out_features, subkey) in enumerate(
            zip(sizes[:-1], sizes[1:], jr.split(key, last + 1), strict=True)
        )
    ]


def make_mlp(
    sizes: Sequence[int],
    *,
    key: Key[Array, ""],
    activation: Activation | str = jax.nn.relu,
    activation_last_layer: bool = True,
    **dense_options: Any,
) -> Sequential[Float[Array, "B in"], Float[Array, "B out"]]:
    """A multi-layer perceptron: `make_mlp_layers` in a `Sequential`.

    **Arguments:** those of `make_mlp_layers`.
    """
    return Sequential(
        make_mlp_layers(
            sizes,
            key=key,
            activation=activation,
            activation_last_layer=activation_last_layer,
            **dense_options,
        )
    )


def make_mlp_actor_critic(
    obs_size: int | None = None,
    action_size: int | None = None,
    actor_hidden_sizes: Sequence[int] = (64, 64),
    critic_hidden_sizes: Sequence[int] = (64, 64),
    *,
    key: Key[Array, ""],
    env: Any = None,
    activation: Activation | str = "relu",
    normalize_obs: bool = True,
    initializer_scale: float = 1.0,
    entropy_weight: float = 1e-2,
    min_std: float = 1e-1,
    std_scale: float = 1.0,
    state_independent_std: bool = False,
    discrete: bool = False,
    policy_scale: float = 1.0,
    kernel_init: Initializer | None = None,
) -> AnyModule:
    """An actor and a critic without memory, two towers on the same observation.

    ```
    Sequential([
        Normalizer(obs_size),
        PPOAdapter(action=Sequential([*actor, sampler]), value=critic),
    ])
    ```

    **Arguments:**

    - `obs_size`: features of the observation, an array `[B, obs_size]`.
    - `action_size`: components of a continuous action, or the number of discrete ones.
    - `actor_hidden_sizes`, `critic_hidden_sizes`: of the hidden layers.
    - `key`: for the initial weights.
    - `env`: the environment to act in, instead of `obs_size`, `action_size` and
      `discrete`. Observations that are images or trees are joined to one array after
      the normaliser; of a mapping with the entries `"state"` and `"privileged_state"`,
      which MuJoCo Playground has, the network sees the former.
    - `activation`: as in `make_mlp_layers`.
    - `normalize_obs`: whether a `Normalizer` comes first; else the `PPOAdapter` stands
      alone.
    - `initializer_scale`: kernels start uniform with the variance
      `initializer_scale / fan_in`.
    - `entropy_weight`, `min_std`, `std_scale`: of the sampler.
    - `state_independent_std`: whether the standard deviations of a continuous action
      are learned by themselves, the same in every state, instead of being an output.
      Discrete actions have none.
    - `discrete`: a `CategoricalSampler` instead of a `NormalTanhSampler`.
    - `policy_scale`: multiplies the initial kernel of the last policy layer. At 0.01
      the first policy hardly depends on the observation, which often learns faster.
    - `kernel_init`: instead of `initializer_scale`, for example
      `jax.nn.initializers.orthogonal(2**0.5)`.

    **Returns:**

    A network for PPO.

    **Raises:**

    `ValueError` unless either the sizes are given or an environment that says them, and
    `TypeError` for a flag that is not a `bool`.
    """
    expect_flags(
        normalize_obs=normalize_obs,
        state_independent_std=state_independent_std,
        discrete=discrete,
    )
    border = border_of(obs_size, action_size, discrete, env)
    if kernel_init is None:
        kernel_init = jax.nn.initializers.variance_scaling(
            initializer_scale, "fan_in", "uniform"
        )
    adapter = _heads(
        border.features,
        border.action_size,
        actor_hidden_sizes,
        critic_hidden_sizes,
        key=key,
        activation=activation,
        discrete=border.discrete,
        entropy_weight=entropy_weight,
        min_std=min_std,
        std_scale=std_scale,
        state_independent_std=state_independent_std,
        policy_scale=policy_scale,
        kernel_init=kernel_init,
    )
    before = border.layers(normalize_obs)
    return Sequential([*before, adapter]) if before else adapter


def make_recurrent_actor_critic(
    obs_size: int | None = None,
    action_size: int | None = None,
    *,
    key: Key[Array, ""],
    env: Any = None,
    cell: Cell = "lstm",
    hidden_features: int = 128,
    discrete: bool = False,
    head_sizes: Sequence[int] = (64,),
    activation: Activation | str = "tanh",
    normalize_obs: bool = True,
    policy_scale: float = 0.01,
    entropy_weight: float = 1e-2,
    min_std: float = 1e-1,
    std_scale: float = 1.0,
    state_independent_std: bool = False,
    trainable_initial_state: bool = False,
    kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
) -> Sequential[Any, PPONetworkOutput]:
    """An actor and a critic that share a memory: normaliser, memory, two heads.

    **Arguments:**

    - `obs_size`, `action_size`, `env`: as in `make_mlp_actor_critic`.
    - `key`: for the initial weights.
    - `cell`: the memory: `"lstm"`, `"gru"`, `"lru"`, `"min_gru"` or `"attention"`, for
      `LSTM`, `GRU`, `LRU`, `MinGRU` and `WindowedAttention`.
    - `hidden_features`: size of the memory, and of what the heads see.
    - `discrete`: a `CategoricalSampler` instead of a `NormalTanhSampler`.
    - `head_sizes`: hidden layers of the actor's head and of the critic's.
    - `activation`: of the heads, as in `make_mlp_layers`.
    - `normalize_obs`: whether a `Normalizer` comes first.
    - `policy_scale`: multiplies the initial kernel of the last policy layer.
    - `entropy_weight`, `min_std`, `std_scale`: of the sampler.
    - `state_independent_std`: whether the standard deviations of a continuous action
      are learned by themselves, the same in every state, instead of being an output.
      Discrete actions have none.
    - `trainable_initial_state`: whether the memory at an episode's start is learned.
      Attention has none then, so there is nothing to learn.
    - `kernel_init`: of the heads and of the cell's input kernel.

    **Returns:**

    A network for PPO.

    **Raises:** as `make_mlp_actor_critic`.
    """
    expect_flags(
        normalize_obs=normalize_obs,
        state_independent_std=state_independent_std,
        discrete=discrete,
        trainable_initial_state=trainable_initial_state,
    )
    border = border_of(obs_size, action_size, discrete, env)
    make_memory = _named("cell", cell, _CELLS)
    if not callable(make_memory):
        raise TypeError(
            f"cell must be one of {', '.join(map(repr, _CELLS))}, got {cell!r}"
        )
    options: dict[str, Any] = {}
    if trainable_initial_state:
        if make_memory is WindowedAttention:
            raise ValueError(
                "attention begins an episode without a memory, so that there is no "
                "initial state to train; leave out trainable_initial_state, or choose "
                "another cell"
            )
        options["trainable_initial_state"] = True
    memory = make_memory(
        border.features,
        hidden_features,
        key=derive(key, "memory"),
        kernel_init=kernel_init,
        **options,
    )
    heads = _heads(
        hidden_features,
        border.action_size,
        head_sizes,
        head_sizes,
        key=derive(key, "heads"),
        activation=activation,
        discrete=border.discrete,
        entropy_weight=entropy_weight,
        min_std=min_std,
        std_scale=std_scale,
        state_independent_std=state_independent_std,
        policy_scale=policy_scale,
        kernel_init=kernel_init,
    )
    return Sequential([*border.layers(normalize_obs), memory, heads])


def make_variational_actor_critic(
    obs_size: int | None = None,
    action_size: int | None = None,
    *,
    key: Key[Array, ""],
    env: Any = None,
    latent_size: int = 16,
    encoder_sizes: Sequence[int] = (64,),
    head_sizes: Sequence[int] = (64,),
    kl_weight: float = 1e-3,
    discrete: bool = False,
    activation: Activation | str = "tanh",
    normalize_obs: bool = True,
    policy_scale: float = 0.01,
    entropy_weight: float = 1e-2,
    min_std: float = 1e-1,
    std_scale: float = 1.0,
    state_independent_std: bool = False,
    kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
) -> Sequential[Any, PPONetworkOutput]:
    """An actor and a critic behind a noisy bottleneck: encoder, latent, two heads.

    **Arguments:**

    - `obs_size`, `action_size`, `env`: as in `make_mlp_actor_critic`.
    - `key`: for the initial weights.
    - `latent_size`: size of the latent.
    - `encoder_sizes`: hidden layers before the latent.
    - `head_sizes`: hidden layers of the actor's head and of the critic's.
    - `kl_weight`: what a nat of information about the observation costs.
    - the rest: as in `make_recurrent_actor_critic`.

    **Returns:**

    A network for PPO.

    **Raises:** as `make_mlp_actor_critic`.
    """
    expect_flags(
        normalize_obs=normalize_obs,
        state_independent_std=state_independent_std,
        discrete=discrete,
    )
    border = border_of(obs_size, action_size, discrete, env)
    sizes = [border.features, *encoder_sizes]
    encoder = make_mlp_layers(
        sizes,
        key=derive(key, "encoder"),
        activation=activation,
        kernel_init=kernel_init,
    )
    to_latent = Dense(
        sizes[-1],
        2 * latent_size,
        key=derive(key, "latent"),
        kernel_init=kernel_init,
    )
    heads = _heads(
        latent_size,
        border.action_size,
        head_sizes,
        head_sizes,
        key=derive(key, "heads"),
        activation=activation,
        discrete=border.discrete,
        entropy_weight=entropy_weight,
        min_std=min_std,
        std_scale=std_scale,
        state_independent_std=state_independent_std,
        policy_scale=policy_scale,
        kernel_init=kernel_init,
    )
    return Sequential(
        [
            *border.layers(normalize_obs),
            *encoder,
            to_latent,
            VariationalBottleneck(latent_size, kl_weight),
            heads,
        ]
    )


def _heads(
    in_features: int,
    action_size: int,
    actor_hidden_sizes: Sequence[int],
    critic_hidden_sizes: Sequence[int],
    *,
    key: Key[Array, ""],
    activation: Activation | str,
    discrete: bool,
    entropy_weight: float,
    min_std: float,
    std_scale: float,
    state_independent_std: bool,
    policy_scale: float,
    kernel_init: Initializer,
) -> PPOAdapter:
    """Two towers on one input: a policy with its sampler, and a value."""
    actor_sizes = [in_features, *actor_hidden_sizes]
    actor = make_mlp_layers(
        actor_sizes,
        key=derive(key, "actor"),
        activation=activation,
        kernel_init=kernel_init,
    )
    policy = Dense(
        actor_sizes[-1],
        action_size if discrete or state_independent_std else 2 * action_size,
        key=derive(key, "policy"),
        kernel_init=_scaled(kernel_init, policy_scale),
    )
    critic = make_mlp(
        [in_features, *critic_hidden_sizes, 1],
        key=derive(key, "critic"),
        activation=activation,
        activation_last_layer=False,
        kernel_init=kernel_init,
    )
    log_std = jnp.zeros(action_size, jnp.float32) if state_independent_std else None
    sampler = (
        CategoricalSampler(entropy_weight)
        if discrete
        else NormalTanhSampler(entropy_weight, min_std, std_scale, log_std=log_std)
    )
    return PPOAdapter(action=Sequential([*actor, policy, sampler]), value=critic)


def _scaled(initializer: Initializer, factor: float) -> Initializer:
    def scaled(*arguments: Any) -> Array:
        return factor * initializer(*arguments)

    return scaled


def _named(kind: str, choice: Any, choices: dict[str, Any]) -> Any:
    """What a name stands for; what is not a name stands for itself."""
    if not isinstance(choice, str):
        return choice
    if choice not in choices:
        raise ValueError(
            f"unknown {kind} {choice!r}; choose one of {', '.join(map(repr, choices))}"
            f"{did_you_mean(choice, choices)}"
        )
    return choices[choice]
