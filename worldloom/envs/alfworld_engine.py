"""ALFWorld's engine as it is, without the work that it does more than once.

TextWorld's PDDL engine grounds each problem four times (twice in ``load``, twice in ``reset``), parses the same
few grammar rules anew in every step, and copies every entity at each derivation. Parsing and grounding are pure
functions of their text, so their results are kept; entities are never written to, so they are shared.
What the engine says is unchanged (``tests/envs/test_alfworld.py`` compares whole episodes with the plain engine).
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

RULES_KEPT = 4096
PROBLEMS_KEPT = 2


def new_engine() -> Any:
    """A playable engine: ``load(game)``, ``reset()``, ``step(command)``; ``unwrapped`` is TextWorld's PddlEnv."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    keep_results()
    return AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, lost=True, admissible_commands=True)))


@functools.cache
def keep_results() -> None:
    """Memoise parsing and grounding and share entities, once per process."""
    import fast_downward
    from textworld import logic
    from textworld.envs.pddl import textgen

    textgen._parse_and_convert = _kept_copies(textgen._parse_and_convert)
    textgen.Rule.parse_conjunctive_query = functools.lru_cache(RULES_KEPT)(logic.Rule.parse_conjunctive_query)
    textgen.copy_context = _copy_context
    textgen.Symbol.copy = _copy_symbol
    fast_downward.pddl2sas = functools.lru_cache(PROBLEMS_KEPT)(fast_downward.pddl2sas)


def _kept_copies(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what ``parse`` gives, and hand out copies: a derivation writes its context into the symbols."""
    kept = functools.lru_cache(RULES_KEPT)(parse)

    def parse_once(text: str, **options: Any) -> Any:
        return copy.deepcopy(kept(text, **options))

    return parse_once


def _copy_context(context: dict[str, Any]) -> dict[str, Any]:
    return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}


def _copy_symbol(symbol: Any, context: dict[str, Any]) -> Any:
    twin = copy.copy(symbol)
    twin.context = _copy_context(context)
    return twin
