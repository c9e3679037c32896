"""Action samplers: the last layer of a policy.

`action_sampler` says what a sampler and its distribution are; the other files hold
distributions by their families, each with its sampler.
"""

from .action_sampler import (
    ActionDistribution as ActionDistribution,
    ActionSampler as ActionSampler,
)
from .bernoulli import Bernoulli as Bernoulli, BernoulliSampler as BernoulliSampler
from .beta import Beta as Beta, BetaSampler as BetaSampler
from .categorical import (
    Categorical as Categorical,
    CategoricalSampler as CategoricalSampler,
    MultiCategoricalSampler as MultiCategoricalSampler,
)
from .normal import (
    Normal as Normal,
    NormalSampler as NormalSampler,
    NormalTanh as NormalTanh,
    NormalTanhSampler as NormalTanhSampler,
    tanh_normal_log_density as tanh_normal_log_density,
)
