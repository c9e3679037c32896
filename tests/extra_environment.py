"""What an extra installs, seen from an environment that has it and nothing else.

`nox -s extras` makes such environments and runs `python tests/extra_environment.py
EXTRA` in each. It is not collected by pytest.
"""

import importlib
import sys

import jax
import jax.random as jr

import nnx_ppo_fn
from nnx_ppo_fn import envs


ENVIRONMENTS = {
    "gymnax": "gymnax:Pendulum-v1",
    "brax": "brax:inverted_pendulum",
    "playground": "playground:CartpoleBalance",
}
PACKAGES = {
    "cli": ("tyro", "rich", "matplotlib", "imageio_ffmpeg"),
    "plot": ("matplotlib",),
    "xarray": ("xarray",),
    "nnx": ("flax.nnx",),
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb", "imageio_ffmpeg"),
}
CONTAINED = {"playground": ("playground", "brax")}
"""What an extra brings beside itself: Playground is built on Brax."""


def can_act(name):
    """Makes an environment, a network that fits, and takes a step."""
    env = envs.make(name)
    network = nnx_ppo_fn.make_recurrent_actor_critic(
        key=jr.key(0), env=env, hidden_features=4, head_sizes=(4,)
    )
    start = nnx_ppo_fn.initial_rollout_state(env, network, jr.split(jr.key(1), 2))
    unroll = jax.jit(lambda state: nnx_ppo_fn.unroll_env(env, network, state, 2))
    _, rollout = unroll(start)
    assert rollout.is_first.shape == (2, 2)


def complains(name, extra):
    """An environment of an extra that is missing names it."""
    try:
        envs.make(name)
    except ImportError as error:
        assert f"nnx_ppo_fn[{extra}]" in str(error), error
    else:
        raise AssertionError(f"{name} can be made without the extra {extra}")


def main(extra):
    """Checks what is there with `extra`, and that the rest says what is missing."""
    can_act("cartpole")
    there = CONTAINED.get(extra, (extra,))
    everything = extra == "all"
    for other, name in ENVIRONMENTS.items():
        if everything or other in there:
            can_act(name)
        else:
            complains(name, other)
    for other, packages in PACKAGES.items():
        for package in packages if everything or other in there else ():
            importlib.import_module(package)
    print(f"{extra}: fine")


if __name__ == "__main__":
    main(*sys.argv[1:])
