"""The laws that every module must obey, as tests for your own modules."""

from .check_module import check_module as check_module
from .static import check_structure as check_structure
from .violation import LAWS as LAWS, LawViolation as LawViolation
