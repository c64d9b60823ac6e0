"""Engine arguments and environment are plain data that say what the learner relies on."""

import importlib.util

from core.config import PolicyConfig, RolloutConfig
from core.config_served import ServedModelConfig
from core.engine_args import (
    GUARD_EXTENSION,
    OWNER_ENV,
    WEIGHT_EXTENSION,
    cpu_engine_env,
    engine_env,
    policy_engine_args,
    served_engine_args,
)

POLICY = PolicyConfig(model="m", max_model_len=300)


def test_policy_logprobs_are_those_of_the_sampled_distribution() -> None:
    args = policy_engine_args(POLICY, RolloutConfig(), is_cpu=True, model_folder="/m")
    assert args["logprobs_mode"] == "processed_logprobs"
    assert args["model"] == "/m"
    assert args["max_model_len"] == 300
    assert args["weight_transfer_config"] == {"backend": "ratchet"}


def test_a_cpu_engine_is_eager_and_has_no_gpu_settings() -> None:
    args = policy_engine_args(POLICY, RolloutConfig(), is_cpu=True, model_folder="/m")
    assert args["enforce_eager"] is True
    assert not {"tensor_parallel_size", "gpu_memory_utilization"} & set(args)


def test_a_cpu_engine_computes_in_its_own_process_and_a_gpu_engine_as_vllm_chooses() -> None:
    args = policy_engine_args(POLICY, RolloutConfig(), is_cpu=True, model_folder="/m")
    module, _, name = args["distributed_executor_backend"].rpartition(".")
    assert importlib.util.find_spec(module) is not None
    assert name == "UniProcExecutor"
    rollout = RolloutConfig(num_gpus=1)
    gpu = policy_engine_args(POLICY, rollout, is_cpu=False, model_folder="/m")
    assert "distributed_executor_backend" not in gpu


def test_a_gpu_engine_takes_parallelism_and_memory_from_the_config() -> None:
    rollout = RolloutConfig(num_gpus=2, tensor_parallel_size=2, gpu_memory_utilization=0.5)
    args = policy_engine_args(POLICY, rollout, is_cpu=False, model_folder="/m")
    assert args["enforce_eager"] is False
    assert args["tensor_parallel_size"] == 2
    assert args["gpu_memory_utilization"] == 0.5


def test_a_served_model_is_guarded_and_takes_its_own_context() -> None:
    config = ServedModelConfig(
        backend="vllm", model="/j", max_model_len=128, max_tokens=64, max_ongoing_requests=7
    )
    args = served_engine_args(config, is_cpu=True)
    assert args["model"] == "/j"
    assert args["max_model_len"] == 128
    assert args["max_num_seqs"] == 7
    assert args["worker_extension_cls"] == GUARD_EXTENSION


def test_a_served_model_is_split_over_as_many_gpus_as_its_config_says() -> None:
    config = ServedModelConfig(backend="vllm", model="/j", num_gpus=4, tensor_parallel_size=4)
    assert served_engine_args(config, is_cpu=False)["tensor_parallel_size"] == 4
    assert "tensor_parallel_size" not in served_engine_args(config, is_cpu=True)


def test_the_named_plug_in_modules_exist() -> None:
    for name in (WEIGHT_EXTENSION, GUARD_EXTENSION):
        assert importlib.util.find_spec(name.rpartition(".")[0]) is not None


def test_threads_are_a_whole_number_of_at_least_one() -> None:
    assert cpu_engine_env(0)["OMP_NUM_THREADS"] == "1"
    assert cpu_engine_env(3)["OMP_NUM_THREADS"] == "3"


def test_the_engine_environment_puts_the_root_first_and_keeps_what_was_there() -> None:
    env = engine_env(
        is_cpu=False, num_cpus=1, owner_pid=42, root="/r", env={"PYTHONPATH": "/a:/r:/b"}
    )
    assert env["PYTHONPATH"] == "/r:/a:/b"
    assert env[OWNER_ENV] == "42"
    assert "OMP_NUM_THREADS" not in env
