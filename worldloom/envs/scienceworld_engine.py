"""ScienceWorld's own engine: a Java program in a process of its own, which never outlives the one that started it.

The package's Python class is not used: it reads all the engine's chatter, lists every valid action after each step
(which draws from the game's random numbers), cannot cap the memory, and leaves the order of things to chance.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from worldloom.errors import EnvError, MissingDependency

OLDEST_JAVA = 17
JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # half the CPU time of the default: episodes are short
    "-XX:-UsePerfData",  # no files in /tmp that a killed process leaves behind
    "-XX:+ExitOnOutOfMemoryError",
    # The engine keeps its things in sets that hash by identity. With the usual hash codes their order, and with it
    # lists of choices, scores and winning plans, differs from process to process and from load to load.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # to read the state of the random numbers
)
SCRAMBLE = 0x5DEECE66D  # what java.util.Random.setSeed mixes into a seed, by its specification
NO_JAVA = (
    f"ScienceWorld needs Java {OLDEST_JAVA} or newer{{what}}: install it (Debian or Ubuntu: apt-get install "
    f"openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME to its folder"
)


class Answer(NamedTuple):
    """What the engine says to an action: its text, the score (1 all done, -1 failed), and whether it has ended."""

    text: str
    score: float
    completed: bool


class Engine:
    """One Java process with one game in it. It ends with ``close``, with this object, and with this Python process.

    ``jvm``, ``server`` and ``agent`` are handles on the Java side: its classes, the engine, and the game's agent.

    Raises:
        MissingDependency: the package ``scienceworld`` or Java is absent, or Java is too old.
    """

    def __init__(self) -> None:
        jar = package() / "scienceworld.jar"
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = _launch(jar, self._errors)
        self._clients: list[Any] = []
        self._end = weakref.finalize(self, _kill, self._process, self._errors, self._clients)
        _LIVE.add(self)
        self.jvm = self._connect()
        self.server = self.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        self.agent: Any = None

    @property
    def pid(self) -> int:
        """The Java process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """The Java process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the Java process. May be called twice."""
        self._end()

    def _connect(self) -> Any:
        """The Java side, silenced: its output goes to a pipe that nobody reads after the first two lines."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        assert self._process.stdout is not None
        port, token = self._process.stdout.readline().strip(), self._process.stdout.readline().strip()
        if not token:
            raise MissingDependency(NO_JAVA.format(what=f", and the one found does not start ({self._last_words()})"))
        with self.asked():
            gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token.decode()))
            self._clients.append(gateway._gateway_client)
            java = gateway.jvm.java
            java.lang.System.setOut(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
            version = java.lang.System.getProperty("java.specification.version")
        if float(version) < OLDEST_JAVA:
            self.close()
            raise MissingDependency(NO_JAVA.format(what=f", not {version}"))
        return gateway.jvm

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        return "; ".join(lines[-3:]) or f"exit code {self._process.returncode}"

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Around what is asked of the Java side: if that fails, it is ended and ``EnvError`` raised."""
        from py4j.protocol import Py4JError

        try:
            yield
        except (Py4JError, OSError) as error:
            self.close()
            what = getattr(error, "java_exception", None) or error
            raise EnvError(f"ScienceWorld's Java process failed and was ended: {str(what)[:500]}") from error

    def variations(self) -> dict[str, dict[str, list[int]]]:
        """The engine's own splits: variation numbers by split (train, valid, test) and task."""
        found: dict[str, dict[str, list[int]]] = {"train": {}, "valid": {}, "test": {}}
        server = self.server
        with self.asked():
            going_on, look_up = server.taskStr(), getattr(server, "taskStr_$eq")
            for task in self.texts(server.getTaskNames()):
                look_up(task)
                lists = server.getVariationsTrain(), server.getVariationsDev(), server.getVariationsTest()
                for split, numbers in zip(found, lists, strict=True):
                    found[split][task] = json.loads(numbers.toString())
            look_up(going_on)
        return found

    def load(self, task: str, variation: int, simplifications: str, gold: bool = False) -> None:
        """Start a game. With ``gold`` the engine plays it once before, to make a winning plan (seconds).

        Raises:
            EnvError: the engine cannot load it.
        """
        with self.asked():
            failed = self.server.load(task, variation, simplifications, gold)
            self.agent = self.server.agentInterface().get()
            failed = failed or (self.agent.isInErrorState() and self.agent.getErrorStateMessage())
        if failed:
            raise EnvError(f"ScienceWorld cannot load {task} {variation} with {simplifications!r}: {failed}")

    def instruction(self) -> str:
        """What the game asks for."""
        with self.asked():
            return str(self.server.getTaskDescription())

    def gold(self) -> tuple[str, ...]:
        """The winning plan, if ``load`` was asked for it."""
        with self.asked():
            return tuple(self.texts(self.server.getGoldActionSequence()))

    def act(self, action: str) -> Answer:
        """Take an action.

        One that raises an exception inside the engine counts as a failure at once; the engine itself says so (score
        -1, the exception's name as text) one step later.
        """
        with self.asked():
            text = str(self.server.step(action))
            if self.agent.isInErrorState():
                return Answer(text, -1.0, True)
            return Answer(text, self.server.getScore(), self.server.getCompleted())

    def admissible(self) -> list[str]:
        """The actions that the engine calls valid. Its random numbers are put back, so that asking changes nothing."""
        with self.asked():
            numbers = getattr(getattr(self.jvm.scala.util, "Random$"), "MODULE$").self()
            field = self.jvm.java.lang.Class.forName("java.util.Random").getDeclaredField("seed")
            field.setAccessible(True)
            state = field.get(numbers)
            found = self.texts(self.server.getValidActionObjectCombinations())
            numbers.setSeed(state ^ SCRAMBLE)
            return found

    def texts(self, java_list: Any) -> list[str]:
        """A Java list of texts, fetched in one go."""
        joined = str(self.jvm.java.lang.String.join("\n", java_list))
        return joined.split("\n") if joined else []


_LIVE: weakref.WeakSet[Engine] = weakref.WeakSet()


def _disown() -> None:
    """After a fork, in the child: the Java processes are the parent's. A pipe kept open here would keep them alive."""
    for engine in list(_LIVE):
        engine._end.detach()
        if engine._process.stdin is not None:
            engine._process.stdin.close()


os.register_at_fork(after_in_child=_disown)


def package() -> Path:
    """The folder of the package ``scienceworld``.

    Raises:
        MissingDependency: it, or ``py4j``, is not installed.
    """
    folder = None
    for name in ("py4j", "scienceworld"):
        try:
            found = importlib.util.find_spec(name)
        except ValueError:  # it is being hidden
            found = None
        if found is None or found.origin is None:
            raise MissingDependency(f'ScienceWorld needs the package {name!r}: pip install "worldloom[scienceworld]"')
        folder = Path(found.origin).parent
    assert folder is not None
    return folder


def java() -> str:
    """The Java program: that of ``$JAVA_HOME``, else the first on the path.

    Raises:
        MissingDependency: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise MissingDependency(NO_JAVA.format(what=f", and JAVA_HOME={home} has no bin/java" if home else ""))
    return found


def _launch(jar: Path, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start Java. It ends when its standard input does, and the system closes that however this process ends."""
    from py4j.java_gateway import find_jar_path

    classes = os.pathsep.join([os.path.abspath(find_jar_path()), str(jar)])
    command = [java(), *JVM, "-cp", classes, "py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0"]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=jar.parent,  # it has a table beside it that the engine else writes anew where it is
        start_new_session=True,  # Ctrl-C is for this process, not for Java
    )


def _kill(process: subprocess.Popen[bytes], errors: IO[bytes], clients: list[Any]) -> None:
    for client in clients:
        client.is_connected = False  # so that nothing more is said to it, not even that an object is not needed
        client.close()
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, errors):
        if pipe is not None:
            pipe.close()
