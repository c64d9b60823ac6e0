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
from drivers.methods.online_rubrics import OnlineRubrics
from drivers.methods.rare import Rare
from drivers.methods.rare_task import RareTask
from drivers.methods.ratchet import Ratchet
from drivers.methods.rler import Rler
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
        case RlerEvolution() as rler:
            return Rler(desk, rler)
        case OnlineRubricsEvolution() as online:
            assert parts.control is not None, "a run of online_rubrics starts control workers"
            return OnlineRubrics(desk, online, parts.control)
        case RatchetEvolution() as ratchet:
            return Ratchet(desk, ratchet)
