"""A recorded environment of Gymnasium: each reset begins an episode, each step is one of its steps."""

from typing import Any

from worldloom.errors import ConfigError, MissingDependency
from worldloom.recording.recorder import Episode, Recorder

try:
    import gymnasium
except ImportError as error:
    raise MissingDependency("gymnasium is not installed; `pip install worldloom[gym]`") from error


def recorded_env(env: Any, recorder: Recorder) -> "RecordedEnv":
    """Wrap an environment.

    Raises:
        ConfigError: it is not Gymnasium's.
    """
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"{type(env).__name__} is no gymnasium.Env; wrap an environment of worldloom in worldloom.envs.gym.GymEnv, "
            "or record its `step`"
        )
    return RecordedEnv(env, recorder)


class RecordedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records what passes through and changes nothing of it.

    An episode ends with the step that says so, with an exception of the environment (its ``error``), or, its end
    unknown, with the next reset or ``close``. Observations and actions that are no texts are said as the recorder's
    ``text`` says them.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], recorder: Recorder):
        super().__init__(env)
        self._recorder = recorder
        self._episode: Episode | None = None
        self._env_name = env.spec.id if env.spec else type(env.unwrapped).__name__

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and begin an episode; one that cannot be started is recorded with its error."""
        self._leave()
        try:
            observation, info = self.env.reset(seed=seed, options=options)
        except BaseException as error:
            self._begun({"seed": seed}, "").end(error=error)
            raise
        self._episode = self._begun({"seed": seed, **info}, self._recorder.text(observation))
        return observation, info

    def _begun(self, info: dict[str, Any], observation: str) -> Episode:
        seed, given = info.get("seed"), self._recorder.about
        by_seed = f"seed-{seed}" if seed is not None else None
        said = {key: info[key] for key in ("split", "instruction") if isinstance(info.get(key), str)}
        return self._recorder.episode(
            env=given.get("env") or self._env_name,
            task=info.get("task_id") or given.get("task") or by_seed,
            seed=seed if isinstance(seed, int) else None,
            observation=observation,
            **said,
        )

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step, and record it."""
        if self._episode is None:  # no reset, or over: what the environment says to that is no part of an episode
            return self.env.step(action)
        said = self._recorder.text(action)
        try:
            with self._episode.taking(said):
                result = self.env.step(action)
        except BaseException as error:
            self._leave(error)
            raise
        self._episode.result(said, result)
        if result[2] or result[3]:
            self._leave()
        return result

    def _leave(self, error: BaseException | None = None) -> None:
        if self._episode is not None:
            self._episode.end(error=error)
            self._episode = None

    def close(self) -> None:
        """End the episode, and close the environment."""
        self._leave()
        super().close()
