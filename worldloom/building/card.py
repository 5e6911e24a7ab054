"""``WORLD.md``: what a world is, what it was made from, how far it can be trusted, and how it is played."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worldloom.building.config import BuildConfig, Work
from worldloom.building.quality import COVERAGE, LENGTHS, LINT
from worldloom.evaluate.logged import NO_REAL
from worldloom.evaluate.summary import percent
from worldloom.package import MODEL
from worldloom.runs import read_json

Metrics = Mapping[str, Any]
CARD = "WORLD.md"
SURE, POOR = 0.9, 0.5  # exact match of a stratum, at its interval's nearer end
NAMES = {
    "repeat_last": "saying the last observation again",
    "nothing_happens": "saying that nothing happens",
    "majority_reply": "majority reply to that form of action",
    "retrieval": "nearest transition, this episode's things put in",
    "nearest_reply": "reply to the nearest logged action",
    "few_shot": "the base model, shown three episodes",
}


def write_card(work: Work, config: BuildConfig, metrics: Metrics) -> None:
    """Write ``WORLD.md`` of a build."""
    parts = (
        _opening(config, metrics), _play(config, metrics), _measured(metrics), _trust(metrics), _missing(work),
        _data(work, metrics), _redaction(config, metrics), _lint(work), _limits(metrics),
    )  # fmt: skip
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (work.out / CARD).write_text(text, encoding="utf-8", errors="backslashreplace")


def _opening(config: BuildConfig, metrics: Metrics) -> Iterator[str]:
    train, origin = metrics["train"], metrics["provenance"]
    yield f"# {config.name}\n"
    yield (
        "A world model made from logs: a language model that is told an action and says what the environment of these "
        "logs would answer, and whether the task is then done. It is not that environment.\n"
    )
    ingest = metrics["ingest"]
    yield f"- made from {ingest['episodes']:,} episodes with {ingest['steps']:,} steps, {_outcomes(ingest['outcomes'])}"
    base = Path(train["base"]).name if Path(train["base"]).is_absolute() else train["base"]
    yield f"- model: `{base}`, {train['trainable_parameters']:,} parameters trained"
    yield (
        f"- learnt {train['trajectories_seen']:,} of {train['trajectories']:,} training episodes ({train['epochs']:g} "
        f"passes, {train['tokens_seen']:,} tokens, {train['seconds'] / 60:.0f} minutes)"
    )
    yield f"- built {origin['started'][:10]} by worldloom {origin['versions'].get('worldloom', '')}"
    yield "- `report.html` shows every figure with episodes to read, `coverage.html` what the logs cover"


def _outcomes(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items()) or "of no known outcome"


def _play(config: BuildConfig, metrics: Metrics) -> Iterator[str]:
    yield "## Play it\n"
    yield "```\nworldloom play FOLDER\nworldloom collect --env FOLDER --split test --agent AGENT --out RUN\n```\n"
    yield "where FOLDER is where this file is; it may be moved or copied. In Python:\n"
    yield "```python\nimport worldloom\n"
    yield 'world = worldloom.load_world("FOLDER")\nfirst = world.reset(world.task_ids("test")[0])'
    yield 'print(first.text)\nprint(world.step("...").observation)\n```\n'
    yield (
        f"It needs `world.json`, `starts.jsonl` and `{MODEL}/`. `work/` holds the redacted episodes and is only needed "
        "to score or build again: leave it out where the episodes are not to be given away."
    )


def _measured(metrics: Metrics) -> Iterator[str]:
    one, rollouts = metrics["one_step"], metrics.get("rollouts") or {}
    held_out = metrics["ingest"]["measured"]
    yield "## How far it can be trusted\n"
    yield (
        f"On held-out episodes, of tasks that were not learnt: {one['n_steps']:,} steps of {one['n_episodes']:,} "
        f"episodes, of {held_out['held_out']:,} that were held out. Each rate has its 95 % interval, over episodes.\n"
    )
    yield "| one step ahead, after the real history | exact match | word F1 | keys and types of tools' answers |"
    yield "|---|---|---|---|"
    yield _row("**this world**", one)
    for name, found in one.get("baselines", {}).items():
        yield _row(NAMES.get(name, name), found)
        if found.get("n_steps") and "world_model" in found:
            yield _row(f"this world, on the same steps of {found['n_episodes']} episodes", found["world_model"])
    if rollouts:
        yield "\n" + NO_REAL + "\n"
        yield from _rollouts(rollouts)


def _row(name: str, found: Metrics) -> str:
    answers = found.get("tool_answers") or {}
    rates = (found.get("em"), found.get("word_f1"), answers.get("schema_agreement"))
    if "n_steps" in found and not found["n_steps"]:
        name += " (does not fit the model's window)"
    return f"| {name} | {' | '.join(percent(rate) for rate in rates)} |"


def _rollouts(found: Metrics) -> Iterator[str]:
    yield f"| {found['n_episodes']:,} whole episodes, logged actions | |\n|---|---|"
    yield f"| observations as logged, exact match | {percent(found.get('em'))} |"
    yield f"| observations, word F1 | {percent(found.get('word_f1'))} |"
    if verdicts := found.get("verdicts"):
        yield f"| verdict as logged ({verdicts['n']} episodes) | {percent(verdicts.get('accuracy'))} |"
        always = verdicts["always"]
        yield f"| ... by always saying {always['verdict']} | {percent(always['accuracy'])} |"
        if kappa := verdicts.get("kappa"):
            yield f"| Cohen's kappa | {kappa['value']:.2f} [{kappa['low']:.2f}, {kappa['high']:.2f}] |"
    if found["outgrew_window"]:
        yield f"| episodes that the model's window did not hold | {found['outgrew_window']:,} |"
    if found.get("left_out"):
        yield f"| left out: episodes that the text protocol cannot say | {found['left_out']:,} |"
    yield f"| ended before the log does | {percent(found.get('ended_early'))} |"
    for key, name in (("asked_again", "the same action twice in a row, answered alike"),
                      ("repeated", "an action repeated later, answered alike"),
                      ("logged", "... by the logs")):  # fmt: skip
        if rate := found.get("self_consistency", {}).get(key):
            yield f"| {name} ({rate['steps']} steps) | {percent(rate)} |"


def _trust(metrics: Metrics) -> Iterator[str]:
    yield "## Where\n"
    strata = metrics["one_step"].get("strata", {})
    rated = {name.replace("_", " "): (of["em"], of["n"]) for name, of in strata.items() if of.get("em")}
    sure = [name for name, (em, _) in rated.items() if em["low"] >= SURE]
    poor = [name for name, (em, _) in rated.items() if em["high"] < POOR]
    yield f"Trust it (exact match surely {SURE:.0%} or more): {_list(sure)}.\n"
    yield f"Do not trust it to the word (exact match surely below {POOR:.0%}): {_list(poor)}.\n"
    yield "| kind of step | steps | exact match |\n|---|---|---|"
    for name, (em, n) in rated.items():
        yield f"| {name} | {n:,} | {percent(em)} |"
    yield "\n" + _threshold(metrics.get("confidence", {}).get("risk_bound", {}))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing that was measured"


def _threshold(bound: Metrics) -> str:
    if bound.get("threshold") is None:
        return (
            "No threshold of confidence could be vouched for with so many held-out steps: every answer may be wrong."
            if bound
            else "How sure it is of its answers was not measured."
        )
    told = (
        f"Answers with a probability of {bound['threshold']:.3f} or more were chosen to be wrong in at most "
        f"{bound['target']:.0%}; it accepts {percent(bound.get('accepted'))} of steps"
    )
    observed = f", of which {percent(bound['observed'])} were wrong" if "observed" in bound else ""
    return f"{told}{observed}. `load_world(FOLDER, least_confidence={bound['threshold']:.3f})` keeps to it."


def _missing(work: Work) -> Iterator[str]:
    found = read_json(work / COVERAGE / "stats.json")
    yield "## What the training episodes lack\n"
    yield from (f"- {sentence}" for sentence in found["missing"] or ["nothing that these checks know"])
    yield f"\n{len(found['kinds'])} kinds of actions; the commonest:\n"
    yield "| kind | steps | failed |\n|---|---|---|"
    for name, kind in list(found["kinds"].items())[:15]:
        yield f"| {_cell(name)} | {kind['steps']:,} | {kind['failed']:,} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:80]


def _data(work: Work, metrics: Metrics) -> Iterator[str]:
    found, splits, sizes = metrics["ingest"], read_json(work / "data" / "splits.json"), read_json(work / LENGTHS)
    yield "## Data\n"
    formats = ", ".join(f"{n} {name}" for name, n in found["formats"].items())
    yield f"{found['files']} files ({formats}), {found['records']:,} records, {found['episodes']:,} episodes.\n"
    yield "| what became of them | n |\n|---|---|"
    for name, n in found["became"].items():
        yield f"| episodes: {name.replace('_', ' ')} | {n:,} |"
    for kind in ("skipped", "merged"):
        for reason, n in found[kind].items():
            yield f"| {kind}: {_cell(reason)} | {n:,} |"
    yield f"| unaccounted for | {found['unaccounted']:,} |"
    told = f", the earliest by `{splits['time']}` learnt" if splits["time"] else ""
    yield f"\nSplit by {', '.join(splits['by'])}{told}, seed {splits['seed']}:\n"
    yield "| split | episodes | groups | outcomes |\n|---|---|---|---|"
    for name, of in splits["splits"].items():
        yield f"| {name} | {of['episodes']:,} | {of['groups']:,} | {_outcomes(of['outcomes'])} |"
    train = metrics["train"]
    yield (
        f"\nAn episode has {sizes['mean']:,.0f} tokens on average, at most {sizes['most']:,}; {sizes['over_window']:,} "
        f"are over the model's window of {sizes['window']:,}. In training, {train['steps_left_out']:,} steps were left "
        f"out of long episodes, {train['too_long']} episodes were too long and {train['unsayable']} hold what the text "
        "protocol cannot say."
    )
    if left := found["beginning_left_out_characters"]:
        yield (
            f"\nAll episodes began with the same {left:,} characters (instructions, tools). They tell the model "
            "nothing, so it neither learnt nor reads them; an agent that plays the world is told them."
        )


def _redaction(config: BuildConfig, metrics: Metrics) -> Iterator[str]:
    yield "## Redaction\n"
    yield "Secrets and personal data were replaced by placeholders before anything was written.\n"
    counts = metrics["ingest"]["redacted"]
    yield from _counts("placeholders in the episodes", counts)
    rules = config.redaction
    own = [kind for kind, _ in rules.patterns] + (["names"] if rules.names or rules.name_keys else [])
    yield f"\nLooked for beside the usual kinds: {_list(own) if own else 'nothing'}."
    if rules.keep:
        yield f"Left as they were: {', '.join(sorted(rules.keep))}."
    yield "Names that nobody configured, addresses and dates of birth are not found."


def _lint(work: Work) -> Iterator[str]:
    found = read_json(work / LINT)
    yield f"## Lint\n\n{found['errors']:,} errors, {found['warnings']:,} warnings (`work/lint.json`).\n"
    yield from _counts("rule", found["rules"])


def _counts(head: str, counts: Mapping[str, int]) -> Iterator[str]:
    if counts:
        yield f"| {head} | n |\n|---|---|"
    yield from (f"| {name} | {n:,} |" for name, n in counts.items())


def _limits(metrics: Metrics) -> Iterator[str]:
    yield "## Limits\n"
    yield "- It knows what was logged, and nothing of what the environment would do that nobody tried."
    yield "- Facts that a task did not show (a customer's record, a file) are made up, in the form that they have."
    if not {"success", "failure"} & metrics["ingest"]["outcomes"].keys():
        yield "- The logs do not say how episodes end, so the world does not say when a task is done."
    yield "- Nothing here was compared with the real environment. Try it there before you rely on it."
