"""Episodes of one version of an engine are not mixed with, nor replayed in, another: it may answer otherwise."""

from collections.abc import Iterable
from pathlib import Path

from worldloom.errors import ConfigError
from worldloom.trajectory import EnvRef, Trajectory, read


def version_of(recorded: Iterable[EnvRef], what: str) -> dict[str, str]:
    """The version of each environment that some episodes are of; what does not say its version is passed over.

    Args:
        recorded: which environment each episode is of.
        what: the episodes, for the message.

    Raises:
        ConfigError: an environment is there in two versions.
    """
    found: dict[str, str] = {}
    for name, version in sorted({(ref.name, ref.version) for ref in recorded if ref.version}):
        if name in found:
            raise ConfigError(
                f"{what} holds episodes of {name} in version {found[name]} and in version {version}, which may answer "
                "differently; keep the episodes of each version in a folder of their own"
            )
        found[name] = version
    return found


def check_version(recorded: Iterable[EnvRef], installed: EnvRef, what: str) -> None:
    """Refuse to go on, in the engine that is installed, with what was recorded in another version of it.

    Raises:
        ConfigError: the versions differ, or the episodes are of two versions.
    """
    before = version_of(recorded, what).get(installed.name, installed.version)
    if before and before != installed.version:
        raise ConfigError(
            f"{what} was recorded in {installed.name} version {before}, and version {installed.version} is installed "
            f"here, which may answer differently; install {before}, or collect the episodes anew in a new folder"
        )


def refs_in(*paths: Path) -> list[EnvRef]:
    """Which environment the episodes of some trajectory files are of; a file may be absent."""
    return [trajectory.env for path in paths if path.exists() for trajectory in read(path)]


def refs_of(trajectories: Iterable[Trajectory]) -> list[EnvRef]:
    """Which environment some episodes are of."""
    return [trajectory.env for trajectory in trajectories]
