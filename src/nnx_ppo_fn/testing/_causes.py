"""What usually causes a violation that two laws, or two ways to test one, can find."""

SMUGGLED_OUTPUT = (
    "the module takes an output of the rollout from its extras, so the replay's output "
    "does not depend on the weights as it should, and the gradient is wrong. Compute "
    "the output from the input; only an action (inside SampledAction) may be locked"
)
ROUTED = (
    "route mixes the axes T and B, or time with features: it sees [B, ...] in a step "
    "and [T, B, ...] in an unroll. Count axes from the end, as in axis=-1, and reduce "
    "over features only"
)
IGNORED_ACTION = (
    "the sampler ignores its rollout_extras and samples anew. Use them: "
    "`raw = sample if rollout_extras is None else rollout_extras`"
)
RECORDED_LIKELIHOOD = (
    "the log-likelihood comes from the extras, or through stop_gradient. Record the "
    "raw action, and compute its log-likelihood from the input at every call: PPO's "
    "ratio is that of the new weights to the old"
)
