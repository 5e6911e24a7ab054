"""Whether a model's system messages name the environment: kept beside the weights, so that all who use it say the same.

A model of one environment needs no name, and Word2World's checkpoints have none; one of several has to be told which
of them it is to play.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worldloom.errors import ConfigError, DataError, ModelError
from worldloom.runs import read_json, write_json

FILE = "protocol.json"
IMAGINED = "world-model:"  # before the name of an environment that was imagined
UNKNOWN = "unknown"
NAME_LINE = "Environment: {}\n"


@dataclass(frozen=True)
class Naming:
    """How a model is told where it is; ``environments`` are those that it learnt."""

    named: bool = False
    environments: tuple[str, ...] = ()

    def of(self, env: str | None) -> str | None:
        """The name in the system message of an episode of ``env``; None if there is to be none.

        Raises:
            ConfigError: there has to be one, nobody says which, and the model learnt more than one.
        """
        if not self.named:
            return None
        if env in (None, UNKNOWN) and len(self.environments) == 1:
            return self.environments[0]
        if env is None or env == UNKNOWN:
            learnt = ", ".join(self.environments) or "none that is recorded"
            raise ConfigError(f"the model's system message names the environment: say which (it learnt {learnt})")
        return env.removeprefix(IMAGINED)

    def learning(self, environments: Iterable[str], named: bool | None = None) -> "Naming":
        """After training on more environments. They are named if ``named`` says so; if it says nothing, as before,
        and always where there are several."""
        new = {env.removeprefix(IMAGINED) for env in environments}
        chosen = self.named or len(new) > 1 if named is None else named
        return Naming(chosen, tuple(sorted({*self.environments, *new})))

    def save(self, folder: Path) -> None:
        """Write ``folder/protocol.json``."""
        write_json(folder / FILE, {"names_environment": self.named, "environments": list(self.environments)})

    @classmethod
    def load(cls, folder: Path) -> "Naming":
        """What a model folder says; a folder without the file names nothing.

        Raises:
            ModelError: the file is broken.
        """
        path = folder / FILE
        if not path.is_file():
            return cls()
        try:
            found = read_json(path)
            return cls(bool(found["names_environment"]), tuple(map(str, found["environments"])))
        except (DataError, KeyError, TypeError) as error:
            raise ModelError(f"{path} is broken ({error!r}); copy it from the model's training run") from error
