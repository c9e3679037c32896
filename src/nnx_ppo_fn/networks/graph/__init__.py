"""Networks of named populations with delayed connections.

`builder` describes a graph, `graph` runs it, `schedule` says in which order and how
many steps at a time, and `picture` draws it.
"""

from .builder import PopulationGraphBuilder as PopulationGraphBuilder
from .connection import Connection as Connection
from .graph import GraphState as GraphState, PopulationGraph as PopulationGraph
from .picture import draw_graph as draw_graph, SVG as SVG
from .population import Population as Population
