"""By which of its two ways XLA writes kernels for a CPU.

Users get the newer one, which takes two to three times as long to compile. What JAX
gives to XLA is the same, so tests take the older one; except where equal operations in
different programs must give equal bits, which the older one does not promise.
"""

import os

import jax


_NEWER = "xla_cpu_use_fusion_emitters"
# An XLA that does not know a flag stops the process.
_IS_KNOWN = jax.__version_info__ < (0, 11)

AS_USERS = {_NEWER: True} if _IS_KNOWN else {}
"""Options for `jax.jit(..., compiler_options=AS_USERS)`."""


def compile_faster():
    """By the older way, in this process and in those that it starts.

    To be called before anything is compiled.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _IS_KNOWN and _NEWER not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_NEWER}=false".strip()
