"""Draws what becomes of the gradient where a layer's noise depends on the batch.

Two layers add the same noise to the same policy. One draws it for each environment
from that environment's key; the other draws it for all rows at once from one key, which
nothing but the laws would complain about. `python docs/pictures/wrong_gradient.py`
takes about two minutes on two cores.
"""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree

from nnx_ppo_fn import (
    CategoricalSampler,
    Dense,
    EvalConfig,
    initial_rollout_state,
    LSTM,
    Normalizer,
    normals,
    output,
    partition_trainable,
    ppo_loss,
    PPOAdapter,
    replay,
    Sequential,
    StochasticModule,
    train_ppo,
    TrainResult,
    unroll_env,
    UnrolledModule,
)
from nnx_ppo_fn.networks.unroll import unroll_by_step
from nnx_ppo_fn.presets import build


PICTURE = Path(__file__).parent.parent / "pages" / "pictures" / "wrong_gradient.png"

RIGHT, WRONG, QUIET = "#1f5fa8", "#e08214", "#8a8f98"
COLOURS = {"right": RIGHT, "wrong": WRONG}
STRENGTH = 0.5
SIZE = 32
SEEDS = (0, 1, 2, 3)
STEPS = 204_800


class OwnNoise(StochasticModule):
    """Noise that each environment draws from its own key."""

    inference: bool = False

    def apply(self, draw: Any, x: Any, rollout_extras: Any = None) -> Any:
        """The signal, with noise."""
        noise = 0.0 if self.inference else STRENGTH * normals(draw, x.shape[-1])
        return output(x + noise, batch=len(x))


class SharedNoise(StochasticModule):
    """The same noise, drawn for all rows at once from one key: wrong."""

    inference: bool = False

    def apply(self, draw: Any, x: Any, rollout_extras: Any = None) -> Any:
        """The signal, with noise."""
        noise = 0.0 if self.inference else STRENGTH * jr.normal(draw[0], x.shape)
        return output(x + noise, batch=len(x))


class InRolloutOrder(UnrolledModule):
    """Replays a layer step by step, as the rollout ran it.

    On a whole rollout this gives even the wrong layer the noise that it had.
    """

    inner: Any

    def initialize_state(self, keys: Any) -> Any:
        """That of the layer inside."""
        return self.inner.initialize_state(keys)

    def reset_state(self, state: Any) -> Any:
        """That of the layer inside."""
        return self.inner.reset_state(state)

    def __call__(self, state: Any, x: Any, rollout_extras: Any = None) -> Any:
        """That of the layer inside."""
        return self.inner(state, x, rollout_extras)

    def unroll(
        self, state: Any, xs: Any, is_first: Any, rollout_extras: Any = None
    ) -> Any:
        """One call per step."""
        return unroll_by_step(self.inner, state, xs, is_first, rollout_extras)


def policy(noise: Any, *, key: Any) -> Sequential:
    """An actor whose memory is behind a noisy layer, and a critic without noise."""
    keys = jr.split(key, 6)
    actor = [
        Dense(2, SIZE, key=keys[0], activation=jnp.tanh),
        noise,
        LSTM(SIZE, SIZE, key=keys[1]),
        Dense(SIZE, SIZE, key=keys[2], activation=jnp.tanh),
        Dense(SIZE, 2, key=keys[3]),
        CategoricalSampler(0.01),
    ]
    critic = [LSTM(2, SIZE, key=keys[4]), Dense(SIZE, 1, key=keys[5])]
    return Sequential(
        [Normalizer(2), PPOAdapter(Sequential(actor), Sequential(critic))]
    )


def with_noise(network: Sequential, noise: Any) -> Sequential:
    """The same weights around another layer of noise."""
    return eqx.tree_at(lambda n: n[1].action.layers[1], network, noise)


def settings() -> Any:
    """Environments and configuration, with the check of the replay switched off."""
    setup = build("hidden-cartpole", "lstm", key=jr.key(0), total_steps=STEPS)
    config = dataclasses.replace(
        setup.config,
        ppo=dataclasses.replace(setup.config.ppo, replay_tolerance=1e9),
        eval=EvalConfig(
            every_steps=12_288, max_episode_length=500, deterministic=False
        ),
    )
    return setup.train_env, setup.eval_env, config


def trained(noise: Any, seed: int) -> TrainResult:
    """A training, evaluated with noise."""
    env, eval_env, config = settings()
    network = policy(noise, key=jr.key(seed))
    return train_ppo(env, network, config, seed=seed, eval_env=eval_env)


def gradients(network: Sequential, noise: Any) -> dict[str, Any]:
    """What one rollout teaches the policy: the true gradient, PPO's, and its ratios.

    Weights are unchanged since the rollout, and advantages are not normalised, so that
    the mean over minibatches is the gradient of the whole.
    """
    env, _, config = settings()
    ppo = dataclasses.replace(
        config.ppo, normalize_advantages=False, critic_loss_weight=0.0
    )
    noisy = with_noise(network, noise)
    start = initial_rollout_state(env, noisy, jr.split(jr.key(1), ppo.n_envs))
    # The first rollout is there to leave the starts of the episodes behind.
    now, _ = unroll_env(env, noisy, start, ppo.rollout_length)
    _, rollout = unroll_env(env, noisy, now, ppo.rollout_length)
    order = jr.permutation(jr.key(2), ppo.n_envs)
    batches = [rollout.minibatch(part) for part in jnp.split(order, ppo.n_minibatches)]
    in_order = with_noise(network, InRolloutOrder(noise))
    true, log_ratio = policy_gradient(in_order, rollout, ppo)
    assert log_ratio < 1e-4, "the reference must have the rollout's own noise"
    parts = [policy_gradient(noisy, part, ppo)[0] for part in batches]
    log_ratios = [
        replay(noisy, part).output.loglikelihoods
        - part.transitions.network_output.loglikelihoods
        for part in batches
    ]
    return {
        "true": np.asarray(true),
        "ppo": np.mean(parts, axis=0),
        "ratios": np.exp(np.concatenate([np.ravel(part) for part in log_ratios])),
    }


@eqx.filter_jit
def policy_gradient(network: Sequential, rollout: Any, config: Any) -> Any:
    """The gradient of the loss for the actor's weights, and the largest log-ratio."""
    parameters, rest = partition_trainable(network)

    def loss(parameters: Any) -> Any:
        value, metrics = ppo_loss(eqx.combine(parameters, rest), rollout, config)
        return value, metrics["replay/log_ratio"]

    slope, log_ratio = jax.grad(loss, has_aux=True)(parameters)
    return ravel_pytree(slope[1].action)[0], log_ratio


def cosine(one: dict[str, Any]) -> float:
    """Of the angle between the true gradient and PPO's."""
    true, ppo = one["true"], one["ppo"]
    return float(true @ ppo / np.linalg.norm(true) / np.linalg.norm(ppo))


def pooled(several: list[dict[str, Any]], kind: str) -> Any:
    """The numbers of all policies."""
    return np.concatenate([one[kind] for one in several])


def main() -> None:
    """Trains, measures, and draws."""
    layers = {"right": OwnNoise(), "wrong": SharedNoise()}
    results = {
        name: [trained(layer, seed) for seed in SEEDS] for name, layer in layers.items()
    }
    # The same policies for both layers: those that have learned with the right one.
    found = {
        name: [gradients(one.network, layer) for one in results["right"]]
        for name, layer in layers.items()
    }
    for name, several in found.items():
        print(name, "cosines", [round(cosine(one), 3) for one in several], end=", ")
        ratios = pooled(several, "ratios")
        print(f"outside the clip range {np.mean(np.abs(ratios - 1) > 0.2):.3f}")
    curves = {
        name: [
            [(row["step"], row["eval/episode_reward/mean"]) for row in one.eval_history]
            for one in several
        ]
        for name, several in results.items()
    }
    for name, several in curves.items():
        print(f"{name}: last returns {[round(curve[-1][1]) for curve in several]}")
    draw(curves, found)


def draw(curves: dict[str, Any], found: dict[str, Any]) -> None:
    """Four panels: both gradients, the ratios, the learning curves."""
    matplotlib.use("Agg")
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": "#333333",
            "xtick.color": QUIET,
            "ytick.color": QUIET,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlesize": 11,
        }
    )
    figure, panels = plt.subplots(2, 2, figsize=(9, 7.6), layout="constrained")
    titles = {"right": "One key per environment", "wrong": "One key for the batch"}
    for panel, (name, several) in zip(panels[0], found.items(), strict=True):
        _draw_gradient(panel, several, COLOURS[name], titles[name])
    _draw_ratios(panels[1, 0], found)
    _draw_curves(panels[1, 1], curves)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150, facecolor="white")


def _draw_gradient(
    panel: Any, several: list[dict[str, Any]], colour: str, title: str
) -> None:
    """Every policy in units of its own true gradient's typical size."""
    reach = 8
    panel.plot([-reach, reach], [-reach, reach], color=QUIET, linewidth=0.8, zorder=0)
    for one in several:
        unit = np.sqrt(np.mean(np.square(one["true"])))
        true, ppo = one["true"] / unit, one["ppo"] / unit
        panel.scatter(true, ppo, s=5, color=colour, alpha=0.35, linewidths=0)
    panel.set(
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        xlabel="true gradient, a point per weight",
        ylabel="gradient that PPO follows",
        title=title,
        aspect="equal",
    )
    cosines = ", ".join(f"{cosine(one):.2f}" for one in several)
    label = f"cosine in {len(several)} policies:\n{cosines}"
    panel.text(
        0.03,
        0.97,
        label,
        transform=panel.transAxes,
        color=colour,
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 3},
    )
    panel.locator_params(nbins=6)


def _draw_ratios(panel: Any, found: dict[str, Any]) -> None:
    edges = np.geomspace(0.05, 20, 61)
    right, wrong = (pooled(found[name], "ratios") for name in ("right", "wrong"))
    assert np.abs(right - 1).max() < 1e-3
    panel.axvspan(0.8, 1.2, color=QUIET, alpha=0.18, linewidth=0)
    panel.hist(
        np.clip(wrong, edges[0], edges[-1]),
        edges,
        weights=np.full(wrong.shape, 1 / wrong.size),
        color=WRONG,
    )
    panel.axvline(1, color=RIGHT, linewidth=2.4)
    panel.set(
        xscale="log",
        yscale="log",
        ylim=(2e-4, 1.5),
        xlabel="likelihood ratio before any update",
        ylabel="fraction of all steps",
        title="Ratios that should all be 1",
    )
    panel.set_xticks([0.05, 0.2, 1, 5, 20], ["0.05", "0.2", "1", "5", "20"])
    panel.minorticks_off()
    panel.text(1.35, 0.9, "one key each: all here", color=RIGHT, va="center")
    panel.text(1.35, 0.45, "grey: not clipped", color=QUIET, va="center")


def _draw_curves(panel: Any, curves: dict[str, Any]) -> None:
    labels = {"right": "one key each", "wrong": "one key for all"}
    for name, label in labels.items():
        colour = COLOURS[name]
        # [seeds, evaluations, 2]
        points = np.array(curves[name])
        steps, returns = points[0, :, 0] / 1000, points[..., 1]
        panel.plot(steps, returns.T, color=colour, alpha=0.35, linewidth=0.8)
        panel.plot(steps, returns.mean(0), color=colour, linewidth=2.2, label=label)
    panel.legend(frameon=False, loc="upper left")
    panel.set(
        xlim=(0, STEPS / 1000),
        ylim=(0, 520),
        xlabel="environment steps, thousands",
        ylabel="return",
        title=f"Learning with them, {len(SEEDS)} seeds",
    )


if __name__ == "__main__":
    main()
