"""Code that imports from nnx-ppo finds the same names under the same paths here."""

import importlib

import pytest


NAMES = {
    "networks.recording": ["Recorder", "extract_activations", "with_recording"],
    "networks.types": ["StatefulModule", "StatefulModuleOutput", "PPONetworkOutput"],
    "networks.containers": ["Sequential", "Concat", "Parallel", "Splitter"],
    "networks.delay": ["Delay"],
    "networks.feedforward": ["Dense"],
    "networks.recurrent": ["LSTM"],
    "networks.graph.connection": ["Connection"],
    "networks.graph.graph": ["PopulationGraph"],
    "networks.graph.population": ["Population"],
    "networks.graph": ["Connection", "Population", "PopulationGraph"],
    "networks.normalizer": ["Normalizer"],
    "networks.utils": ["Filter", "Flattener", "Map", "Merge", "Scale"],
    "networks.variational": [
        "VariationalBottleneck",
        "AR1VariationalBottleneck",
        "AR1State",
    ],
    "networks.sampling_layers": ["ActionSampler", "NormalTanhSampler"],
    "networks.adapter": ["PPOAdapter"],
    "networks.factories": ["make_mlp_layers", "make_mlp", "make_mlp_actor_critic"],
    "wrappers.episode_wrapper": ["EpisodeWrapper"],
    "wrappers.reward_scaling_wrapper": ["RewardScalingWrapper"],
    "algorithms.types": [
        "EnvState",
        "LoggingLevel",
        "RLEnv",
        "TrainingState",
        "Transition",
    ],
    "algorithms.callbacks": ["wandb_video_fn"],
    "algorithms.config": [
        "EvalConfig",
        "PPOConfig",
        "TrainConfig",
        "TrainResult",
        "VideoConfig",
        "VideoData",
    ],
    "algorithms.rollout": ["record_activations_rollout", "unroll_env"],
    "algorithms.ppo": [
        "gae",
        "new_training_state",
        "ppo_loss",
        "ppo_step",
        "train_ppo",
    ],
}


@pytest.mark.parametrize(
    "path, name", [(path, name) for path, names in NAMES.items() for name in names]
)
def test_the_name_is_there_and_is_ours(path, name):
    found = getattr(importlib.import_module(f"nnx_ppo_fn.{path}"), name)
    assert found.__module__.startswith("nnx_ppo_fn.")
