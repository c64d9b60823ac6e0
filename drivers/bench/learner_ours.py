"""Our arm: the real ``PolicyLearner`` with DeepSpeed on gloo; a plain object, without a cluster."""

import socket
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from core.config import LearnerConfig, PolicyConfig
from core.records import TrainBatch
from drivers.bench.learner_arms import measured, steps_asked_for


@dataclass(frozen=True, kw_only=True, slots=True)
class OursSetup:
    """One rank of the learner."""

    model: str
    batch: TrainBatch
    learner: LearnerConfig


def train_ours(connection: Connection, setup: OursSetup) -> None:
    """Run in a process of its own: build the learner, then one ``train_step`` for every request."""
    from actors.policy_learner import PolicyLearner, RankSetup

    learner = PolicyLearner(0)
    learner.setup(
        RankSetup(
            rank=0,
            world_size=1,
            master=("127.0.0.1", _free_port()),
            learner=setup.learner,
            policy=PolicyConfig(model=setup.model),
            temperature=1.0,
            seed=0,
        )
    )
    connection.send("ready")
    for number, _ in enumerate(steps_asked_for(connection), start=1):
        with measured(connection):
            learner.train_step(replace(setup.batch, step=number))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
