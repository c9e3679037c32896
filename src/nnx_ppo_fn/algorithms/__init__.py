"""PPO, one file per stage; data flows in this order.

`types` and `config` describe it; `checks` looks at environment and network before
anything compiles. `rollout` drives the environments, `replay` recomputes what the
network did, `advantages` and `loss` judge it, `update` learns from it, and `faults` and
`tolerance` watch. `step` is one iteration of all that as a pure function; `loop` runs
many of them from the host, with `evaluation` in between, and `ppo` is the front door.
"""
