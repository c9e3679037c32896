"""Settings that are known to work, and what is built from them.

The command line and the tests start from `build`.
"""

from .building import (
    build as build,
    build_network as build_network,
    options_in_use as options_in_use,
    Setup as Setup,
)
from .measured import (
    FAMILY_PRESETS as FAMILY_PRESETS,
    preset as preset,
    PRESETS as PRESETS,
)
from .options import (
    NetworkOptions as NetworkOptions,
    POLICIES as POLICIES,
    Policy as Policy,
    Preset as Preset,
)
