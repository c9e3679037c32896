"""PPO for stateful policies (recurrent, delayed, variational, noisy) in JAX.

Modules are immutable trees of arrays with pure methods, and every environment owns its
random key. What happens to an environment therefore depends on that environment alone,
however the batch is sliced. See `StatefulModule` for the contract, `testing` for the
check of its laws, and `train_ppo` for training.
"""

from . import envs as envs, presets as presets, testing as testing
from ._counter import Counter as Counter
from ._keys import (
    advance_keys as advance_keys,
    derive as derive,
    EpisodeKeys as EpisodeKeys,
    Held as Held,
    normals as normals,
)
from .algorithms.activity_picture import draw_activity as draw_activity
from .algorithms.advantages import gae as gae, successor_values as successor_values
from .algorithms.callbacks import (
    Callback as Callback,
    JSONLines as JSONLines,
    TensorBoard as TensorBoard,
    WandB as WandB,
    wandb_video_fn as wandb_video_fn,
)
from .algorithms.checks import InvalidEnvironmentError as InvalidEnvironmentError
from .algorithms.compiled import step_compiler_options as step_compiler_options
from .algorithms.config import (
    EvalConfig as EvalConfig,
    LoggingLevel as LoggingLevel,
    PPOConfig as PPOConfig,
    TrainConfig as TrainConfig,
    VideoConfig as VideoConfig,
    VideoData as VideoData,
)
from .algorithms.evaluation import evaluate as evaluate
from .algorithms.loss import ppo_loss as ppo_loss
from .algorithms.ppo import train_ppo as train_ppo
from .algorithms.recording import (
    record_activations_rollout as record_activations_rollout,
    Recording as Recording,
    recording_memory as recording_memory,
)
from .algorithms.replay import replay as replay
from .algorithms.rollout import (
    initial_rollout_state as initial_rollout_state,
    unroll_env as unroll_env,
)
from .algorithms.seeds import train_seeds as train_seeds
from .algorithms.sharding import on_mesh as on_mesh
from .algorithms.step import (
    new_training_state as new_training_state,
    ppo_step as ppo_step,
)
from .algorithms.stopping import (
    SeedsInterrupted as SeedsInterrupted,
    SeedsStopped as SeedsStopped,
    TrainingFault as TrainingFault,
    TrainingInterrupted as TrainingInterrupted,
    TrainingStopped as TrainingStopped,
)
from .algorithms.trajectory import (
    record_episode as record_episode,
    Trajectory as Trajectory,
)
from .algorithms.types import (
    Rollout as Rollout,
    RolloutState as RolloutState,
    Status as Status,
    TrainingState as TrainingState,
    TrainResult as TrainResult,
    Transition as Transition,
)
from .envs import EnvState as EnvState, RLEnv as RLEnv, State as State
from .networks._errors import CompositionError as CompositionError
from .networks._routing import Call as Call, Container as Container
from .networks._trainable import (
    NonTrainable as NonTrainable,
    partition_trainable as partition_trainable,
)
from .networks.adapter import PPOAdapter as PPOAdapter
from .networks.attention import WindowedAttention as WindowedAttention
from .networks.constrained import ConstrainedDense as ConstrainedDense
from .networks.containers import (
    Concat as Concat,
    Map as Map,
    Merge as Merge,
    NamedContainer as NamedContainer,
    Parallel as Parallel,
    Sequential as Sequential,
    Splitter as Splitter,
)
from .networks.convolution import make_conv_encoder as make_conv_encoder
from .networks.delay import Delay as Delay
from .networks.factories import (
    make_mlp as make_mlp,
    make_mlp_actor_critic as make_mlp_actor_critic,
    make_mlp_layers as make_mlp_layers,
    make_recurrent_actor_critic as make_recurrent_actor_critic,
    make_variational_actor_critic as make_variational_actor_critic,
)
from .networks.feedforward import Dense as Dense, Stateless as Stateless
from .networks.graph import (
    draw_graph as draw_graph,
    PopulationGraph as PopulationGraph,
    PopulationGraphBuilder as PopulationGraphBuilder,
)
from .networks.lifting import Lift as Lift
from .networks.linear_recurrent import (
    LinearRecurrentModule as LinearRecurrentModule,
    LRU as LRU,
    MinGRU as MinGRU,
)
from .networks.normalizer import Normalizer as Normalizer
from .networks.override import Override as Override, with_override as with_override
from .networks.recording import (
    extract_activations as extract_activations,
    Recorder as Recorder,
    with_recording as with_recording,
)
from .networks.recurrent import (
    GRU as GRU,
    LSTM as LSTM,
    RecurrentModule as RecurrentModule,
)
from .networks.sampling_layers import (
    ActionDistribution as ActionDistribution,
    ActionSampler as ActionSampler,
    BernoulliSampler as BernoulliSampler,
    BetaSampler as BetaSampler,
    CategoricalSampler as CategoricalSampler,
    MultiCategoricalSampler as MultiCategoricalSampler,
    NormalSampler as NormalSampler,
    NormalTanhSampler as NormalTanhSampler,
)
from .networks.stochastic import (
    BernoulliGate as BernoulliGate,
    Dropout as Dropout,
    GaussianNoise as GaussianNoise,
)
from .networks.summary import Summary as Summary, summary as summary
from .networks.types import (
    ChainedModule as ChainedModule,
    output as output,
    PPONetworkOutput as PPONetworkOutput,
    SampledAction as SampledAction,
    StatefulModule as StatefulModule,
    StatefulModuleOutput as StatefulModuleOutput,
    StatelessModule as StatelessModule,
    StochasticModule as StochasticModule,
    UnrolledModule as UnrolledModule,
)
from .networks.unroll import unroll as unroll
from .networks.utils import (
    Filter as Filter,
    Flattener as Flattener,
    Scale as Scale,
)
from .networks.variational import (
    AR1VariationalBottleneck as AR1VariationalBottleneck,
    VariationalBottleneck as VariationalBottleneck,
)
from .runs import load_run as load_run
from .testing import check_module as check_module, LawViolation as LawViolation
from .video import write_video as write_video
from .wrappers import (
    ActionScalingWrapper as ActionScalingWrapper,
    EpisodeWrapper as EpisodeWrapper,
    RewardScalingWrapper as RewardScalingWrapper,
)


__version__ = "0.1.0"
