"""Metrics as a few lines of text."""

from collections.abc import Iterator
from typing import Any


def table(metrics: dict[str, Any]) -> str:
    """The figures of a run that matter most, with n and interval, in percent."""
    return "\n".join(f"{name:<34} {value}" for name, value in _rows(metrics))


def _rows(metrics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "train" in metrics:
        train = metrics["train"]
        told = f"{train['epochs']:g} passes over {train['trajectories']} episodes"
        yield "trained on", f"{train['tokens_seen']} tokens, {told}, {train['seconds']:.0f} s"
    if "one_step" in metrics:
        one = metrics["one_step"]
        yield "one-step exact match", f"{percent(one['em'])} ({one['n_steps']} steps, {one['n_episodes']} episodes)"
        if one.get("left_out"):
            yield (
                "  steps left out",
                f"{one['left_out']} that the model's window cannot hold or the protocol cannot say",
            )
        for name, baseline in one.get("baselines", {}).items():
            yield f"  baseline: {name.replace('_', ' ')}", percent(baseline.get("em"))
        for name, value in one.get("terminal", {}).items():
            yield f"  terminal {name.replace('_', ' ')}", f"{percent(value)}{_of(value, 'steps')}"
    if "rollouts" in metrics:
        yield from _rollouts(metrics["rollouts"])
    if "confidence" in metrics:
        yield from _confidence(metrics["confidence"])
    if "consistency" in metrics:
        yield from _consistency(metrics["consistency"])
    if "transfer" in metrics:
        yield from transfer_rows(metrics["transfer"])
    for anchor, found in metrics.get("anchoring", {}).items():
        cr = f" CR {_plain(found['cr'])}" if found.get("cr") else ""
        yield f"anchor {anchor}", f"{percent(found.get('share_real'))} of steps answered by reality{cr}"


def _rollouts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "logged actions, imagined answers", f"{percent(found.get('em'))} ({found['n_episodes']} episodes)"
    if verdicts := found.get("verdicts"):
        always = f"always {verdicts['always']['verdict']}: {percent(verdicts['always']['accuracy'])}"
        yield "  verdict as logged", f"{percent(verdicts.get('accuracy'))} ({always})"
    for name, share in found.get("self_consistency", {}).items():
        yield f"  alike: {name.replace('_', ' ')}", percent(share)


def _confidence(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key in (("AUROC of a wrong step", "auroc_wrong_step"), ("AUROC of a wrong rollout", "auroc_rollout")):
        if key in found:
            yield name, _plain(found[key])
    if "observed" in (bound := found.get("risk_bound", {})):
        told = f"{percent(bound['observed'])} of accepted steps (wanted: at most {bound['target']:.1%})"
        yield f"wrong above probability {bound['threshold']:.3f}", f"{told}; accepted {percent(bound['accepted'])}"


def _consistency(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for agent, rates in {**found["agents"], "overall": found["overall"]}.items():
        told = " ".join(f"{name} {percent(rates[name])}" for name in ("real", "wm", "w2r"))
        ratio = f" CR {_plain(rates['cr'])}{_of(rates['cr'], 'real wins')}" if rates.get("cr") else ""
        odd = {kind: {name: n for name, n in rates.get(kind, {}).items() if n} for kind in ("errors", "unknown")}
        counts = "".join(f", {kind} {by_world}" for kind, by_world in odd.items() if by_world)
        yield f"{agent} ({found['n_tasks']} tasks)", told + ratio + counts


def transfer_rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What choosing an agent in the model gains in reality."""
    size = f"{len(found['agents'])} agents, {found['n_tasks']} tasks"
    yield "choosing in the model gains", f"{percent(found['gain_over_random'])} of success over chance ({size})"
    yield "  choosing in reality gains", f"{percent(found['regret_to_best'])} more"


def _plain(rate: dict[str, float]) -> str:
    return f"{rate['value']:.2f} [{rate['low']:.2f}, {rate['high']:.2f}]"


def _of(rate: dict[str, float], what: str) -> str:
    """The denominator; of older results it is not known."""
    return f" of {rate['of']} {what}" if "of" in rate else ""


def percent(rate: dict[str, float] | None) -> str:
    """A rate with its interval, in percent."""
    if rate is None:
        return "-"
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"
