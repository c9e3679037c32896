"""The laws that every module must obey, as tests for your own modules.

`check_structure` (in `static.py`) tests what needs no numbers, `check_module` the rest:

- structure, carry: `static.py`, `_declaration_laws.py`
- provenance: `_provenance_laws.py`, by the walk in `_provenance.py`
- slicing: `_slicing_law.py`
- birth, reset, replay, freshness: `_step_laws.py`
- re-weighting: `_reweighting_law.py`, `_likelihood_law.py`
- unroll, gradient: `_time_laws.py`
- statistics: `_statistics_law.py`, `_statistics_traces.py`
- inference: `_inference_law.py`

What a jaxpr alone tells of resets and replays is in `_dependence_laws.py`.
"""

from .check_module import check_module as check_module
from .static import check_structure as check_structure
from .violation import LAWS as LAWS, LawViolation as LawViolation
