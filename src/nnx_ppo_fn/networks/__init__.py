"""Networks: the contract, the modules, and how they compose.

`types` is the contract, `unroll` the four ways through time. `_routing` passes values,
carries and all else to the children of containers, and `_trainable` says what trains.
`feedforward`, `lifting`, `convolution`, `recurrent`, `linear_recurrent`, `attention`,
`delay`, `normalizer`, `variational`, `stochastic`, `utils` and `sampling_layers` hold
the modules, `containers`, `adapter` and `graph` put them together, `factories` builds
whole networks, and `summary` shows what one is made of.
"""
