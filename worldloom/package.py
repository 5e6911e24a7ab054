"""A world package: a folder with a world model, how its tasks begin, and what is known of it; loaded in one line.

``world.json`` names the files that playing needs, with their sizes and fingerprints, by paths relative to itself: the
folder can be moved, and what is missing or was changed is told when it is loaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from worldloom.envs import MANIFEST
from worldloom.envs.base import Observation
from worldloom.errors import ConfigError, DataError
from worldloom.lm.base import MAX_NEW_TOKENS, WorldLM
from worldloom.naming import IMAGINED
from worldloom.runs import fingerprint, read_json, write_json
from worldloom.trajectory import read
from worldloom.world import Start, WorldModelEnv, starts_of

MODEL, STARTS = "model", "starts.jsonl"
SCHEMA = "worldloom-world/1"
WHOLE = "copy the whole folder again, or build it anew"


class Packed(BaseModel):
    """A file of the package: how large it is, and its fingerprint (``worldloom.runs.fingerprint``)."""

    model_config = ConfigDict(frozen=True)
    bytes: int
    fingerprint: str


class Manifest(BaseModel):
    """What ``world.json`` holds.

    Args:
        name: of the world; its environment is called ``world-model:NAME``.
        version: changes with the weights.
        beginning: what all episodes began with. An agent is told it; the model, to which it says nothing, is not.
        files: what playing needs, by paths relative to the folder.
    """

    model_config = ConfigDict(frozen=True)
    schema_: str = SCHEMA
    name: str
    version: str
    environment: str
    beginning: str = ""
    files: dict[str, Packed]


class PackagedWorld(WorldModelEnv):
    """The world of a package; see ``load_world``."""

    def __init__(self, folder: Path, manifest: Manifest, lm: WorldLM, starts: Mapping[str, Start], **options: Any):
        super().__init__(lm, starts, manifest.environment, **options)
        self.folder, self.manifest = folder, manifest
        self.name, self.version = IMAGINED + manifest.name, manifest.version

    @property
    def _env_name(self) -> str:
        return self.manifest.environment

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options.items() if name != "model"}

    def reset(self, task_id: str, seed: int = 0) -> Observation:
        """Start a task; what all episodes begin with is told to the agent alone."""
        found = super().reset(task_id, seed)
        return found._replace(text=self.manifest.beginning + found.text)


def load_world(
    folder: str | Path,
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    temperature: float = 0.0,
    least_confidence: float | None = None,
) -> PackagedWorld:
    """The world that ``worldloom build`` made, ready to be played: an environment with tasks and splits of its own.

    Args:
        folder: the package.
        max_new_tokens, temperature, least_confidence: see ``WorldModelEnv``.

    Raises:
        DataError: it is no package, or a file of it is missing or is not what was built; names the file.
        ModelError: the model cannot be loaded.
    """
    from worldloom.lm.session import LocalLM

    folder = Path(folder)
    manifest = checked(folder)
    starts = starts_of(read(folder / STARTS, strict=True))
    return PackagedWorld(
        folder, manifest, LocalLM(str(folder / MODEL)), starts, max_new_tokens=max_new_tokens,
        temperature=temperature, least_confidence=least_confidence,
    )  # fmt: skip


def is_package(name: str) -> bool:
    """Whether a name is the folder of a world package."""
    return (Path(name) / MANIFEST).is_file()


def checked(folder: Path) -> Manifest:
    """What a package says of itself, its files being there and what they were.

    Raises:
        DataError: see ``load_world``.
    """
    if not is_package(str(folder)):
        raise DataError(f"is no world package: it has no {MANIFEST} (is its build finished?)", folder)
    found = read_json(folder / MANIFEST)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise DataError(f"is of no schema that is known here ({SCHEMA})", folder / MANIFEST)
    try:
        manifest = Manifest.model_validate({k: v for k, v in found.items() if k != "schema"})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DataError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}; {WHOLE}", folder / MANIFEST) from error
    for name, packed in manifest.files.items():
        _check_file(folder / name, packed)
    return manifest


def _check_file(path: Path, packed: Packed) -> None:
    if not path.is_file():
        raise DataError(f"is missing from the world package; {WHOLE}", path)
    if path.stat().st_size != packed.bytes or fingerprint([path]) != packed.fingerprint:
        raise DataError(f"is not the file that was built; {WHOLE}", path)


def write_manifest(folder: Path, name: str, environment: str, beginning: str) -> Manifest:
    """Write ``world.json`` of a folder that holds the model and the starts.

    Raises:
        ConfigError: there is no model.
    """
    files = [folder / STARTS, *sorted(path for path in (folder / MODEL).rglob("*") if path.is_file())]
    if len(files) < 2:
        raise ConfigError(f"{folder / MODEL} holds no model")
    packed = {
        path.relative_to(folder).as_posix(): Packed(bytes=path.stat().st_size, fingerprint=fingerprint([path]))
        for path in files
    }
    manifest = Manifest(
        name=name, version=fingerprint(files[1:]), environment=environment, beginning=beginning, files=packed
    )
    write_json(folder / MANIFEST, {"schema": SCHEMA, **manifest.model_dump(exclude={"schema_"})})
    return manifest
