"""Makes the method that a config names."""

from core.config_evolution import (
    CareEvolution,
    MpoEvolution,
    OnlineRubricsEvolution,
    RareEvolution,
    RatchetEvolution,
    RlerEvolution,
    StaticEvolution,
)
from drivers.methods.base import Method
from drivers.methods.care import Care
from drivers.methods.desk import EditDesk
from drivers.methods.mpo import Mpo
from drivers.methods.rare import Rare
from drivers.methods.rare_task import RareTask
from drivers.methods.ratchet import Ratchet
from drivers.ports import Parts


def make_method(desk: EditDesk, parts: Parts) -> Method:
    """Return the run's method."""
    match desk.config.evolution:
        case StaticEvolution():
            return Method(desk)
        case CareEvolution() as care:
            return Care(desk, care)
        case RareEvolution(scope="query") as rare:
            return Rare(desk, rare)
        case RareEvolution() as rare:
            return RareTask(desk, rare)
        case MpoEvolution() as mpo:
            return Mpo(desk, mpo)
        case RlerEvolution() | OnlineRubricsEvolution():
            raise NotImplementedError(desk.config.evolution.method)
        case RatchetEvolution() as ratchet:
            return Ratchet(desk, ratchet)
