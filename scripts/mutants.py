#!/usr/bin/env python3
"""Mistakes that cargo-mutants would make in store/, redo/, mtr/ and recovery/, tried against their tests.

cargo-mutants says what there is to try; of that a sample with a fixed seed is taken. It would build the engine once a
mutant, which takes minutes; this builds once, with all of them asleep behind `is_mutated(n)`, as planted bugs are, and
wakes one at a time. A mutant is caught if a test fails, takes ten times the CPU that it takes without one, or hangs.

    scripts/mutants.py [COUNT] [KEY ...]    default: 200, all of them. Results go to target/mutants/results.tsv. A mutant
                                            that is there is tried again if it survived, its test is gone, or its
                                            key is given
Needs cargo-mutants, and of Python tree-sitter and tree-sitter-rust: `make mutants` installs them.
"""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tree_sitter
import tree_sitter_rust

SEED = "1"
# Each with those files of tests/it that are about it, beside the crash matrix.
ROOMS = {
    "store": ["drops", "in_place", "inspect", "lost_writes", "metrics", "put_back", "rebuild", "zones"],
    "redo": ["classic_log", "endings", "inspect", "log_sizes", "metrics", "online", "rebuild"],
    "mtr": ["merges", "scenarios"],
    "recovery": ["put_back", "recoveries", "scenarios"],
}
ENGINE = "crates/millpond/src"
OUT = Path("target/mutants").resolve()
TREE = OUT / "tree"
RESULTS = OUT / "results.tsv"
# What a mutant may take at most: one that allocates or writes without end is caught, too.
MEMORY_MAX = 12 << 30
FILE_MAX = 16 << 30
# Seconds in which a test that goes on uses the CPU for one at least: the engine's idle threads alone do not.
HANGS_AFTER_S = 60
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))


def listed():
    """All mutants of the rooms, the sample's order first."""
    globs = [f"--file={ENGINE}/{room}/**" for room in ROOMS]
    text = subprocess.run(["cargo", "mutants", "--list", "--json", *globs], check=True, capture_output=True, text=True)
    mutants, seen = json.loads(text.stdout), Counter()
    for mutant in mutants:
        at = mutant["span"]["start"]
        mutant["where"] = f"{mutant['file'].removeprefix(ENGINE + '/')}:{at['line']}:{at['column']}"
        function = (mutant.get("function") or {}).get("function_name", "")
        mutant["name"] = f"{function}: {mutant['genre']}: {mutant['replacement'] or 'deleted'}"
        # Not the line: what is sampled stays so when something above it changes.
        what = f"{SEED} {mutant['file']} {mutant['name']}"
        seen[what] += 1
        mutant["key"] = hashlib.sha256(f"{what} {seen[what]}".encode()).hexdigest()[:12]
    # Tests are not tried, nor the places where bugs are planted.
    mutants = [m for m in mutants if "tests::" not in m["name"] and "planted!" not in line_of(m)]
    return sorted(mutants, key=lambda mutant: mutant["key"])


def line_of(mutant):
    return Path(mutant["file"]).read_text().splitlines()[mutant["span"]["start"]["line"] - 1]


def offset(lines, at):
    """Byte offset of a line and column, both from 1, the column in characters."""
    line = lines[at["line"] - 1].decode()
    return sum(len(l) for l in lines[: at["line"] - 1]) + len(line[: at["column"] - 1].encode())


def edit_of(mutant, source, tree):
    """(begin, end, what it becomes when the mutant is awake): an expression, or with begin = end an insertion."""
    lines = source.splitlines(keepends=True)
    begin, end = (offset(lines, mutant["span"][at]) for at in ("start", "end"))
    replacement, awake = mutant["replacement"].encode(), b"crate::planted::is_mutated(%d)" % mutant["number"]
    node = tree.root_node.descendant_for_byte_range(begin, end)
    match mutant["genre"]:
        case "FnValue":
            while node and node.type != "function_item":
                node = node.parent
            # A return of another type than the body's would be one too many of `impl`.
            returns = mutant["function"]["return_type"]
            if not node or in_constant(node.child_by_field_name("body")) or "impl " in returns:
                return None
            body = node.child_by_field_name("body")
            value = b"return" if replacement == b"()" else b"return " + replacement
            return body.start_byte + 1, body.start_byte + 1, b" if %s { %s; } " % (awake, value)
        case "BinaryOperator" | "UnaryOperator":
            while node and node.type not in ("binary_expression", "compound_assignment_expr", "unary_expression"):
                node = node.parent
            if not node or node.start_byte > begin or in_constant(node):
                return None
            text = source[node.start_byte : begin] + replacement + source[end : node.end_byte]
            return node.start_byte, node.end_byte, (awake, text)
        case "MatchArmGuard":
            return begin, end, (awake, replacement)
        case "MatchArm":
            while node and node.type != "match_arm":
                node = node.parent
            if not node:
                return None
            pattern = node.child_by_field_name("pattern")
            guard = pattern.child_by_field_name("condition")
            if guard:
                return guard.start_byte, guard.start_byte, b"!%s && " % awake
            return pattern.end_byte, pattern.end_byte, b" if !%s " % awake
    return None


def in_constant(node):
    """Whether it is computed by the compiler, which wakes nothing."""
    while node:
        if node.type in ("const_item", "static_item", "array_type"):
            return True
        if node.type == "function_item":
            return any(c.type == "function_modifiers" and b"const" in c.text for c in node.children)
        node = node.parent
    return False


def rendered(source, edits, begin, end):
    """The text of a range with its edits: `if awake { mutated } else { as it was, with the edits inside }`."""
    out, at = b"", begin
    inside = sorted((e for e in edits if begin <= e[0] and e[1] <= end), key=lambda e: (e[0], -e[1]))
    for first in inside:
        if first[0] < at or (first[0] == at and first[1] < at):
            continue
        out += source[at : first[0]]
        at = first[1]
        if first[0] == first[1]:
            out += b"".join(e[2] for e in inside if (e[0], e[1]) == (first[0], first[1]))
            inside = [e for e in inside if (e[0], e[1]) != (first[0], first[1]) or e is first]
            continue
        same = [e for e in edits if (e[0], e[1]) == (first[0], first[1])]
        rest = [e for e in edits if e not in same]
        text = rendered(source, rest, first[0], first[1])
        for _, _, (awake, mutated) in same:
            text = b"(if %s { %s } else { %s })" % (awake, mutated, text)
        out += text
    return out + source[at:end]


def copy_tree():
    """The repository's files as they are; those that did not change keep their time, and are not built again."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], check=True, capture_output=True, text=True
    )
    files = {Path(name) for name in names.stdout.split("\0") if name and Path(name).is_file()}
    for name in files:
        write(TREE / name, name.read_bytes())
    for old in [path for path in TREE.rglob("*") if path.is_file() and path.relative_to(TREE) not in files]:
        old.unlink()


def write(path, content):
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


IS_MUTATED = """
/// Whether this mutant is awake: `MILLPOND_MUTANT` names it. The file that `MILLPOND_REACHED` names gets the number of
/// each mutant that a thread comes to.
pub(crate) fn is_mutated(number: usize) -> bool {
    use std::sync::{LazyLock, Mutex};
    static AWAKE: LazyLock<usize> =
        LazyLock::new(|| std::env::var("MILLPOND_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX));
    static REACHED: LazyLock<Option<Mutex<(std::fs::File, std::collections::BTreeSet<usize>)>>> = LazyLock::new(|| {
        let path = std::env::var("MILLPOND_REACHED").ok()?;
        Some(Mutex::new((std::fs::File::create(path).unwrap(), Default::default())))
    });
    if let Some(reached) = REACHED.as_ref() {
        let mut reached = reached.lock().unwrap();
        if reached.1.insert(number) {
            std::io::Write::write_all(&mut reached.0, format!("{number}\\n").as_bytes()).unwrap();
        }
    }
    *AWAKE == number
}
"""


def instrument(mutants):
    """Writes the tree with these mutants in it; returns those that can be written so."""
    planted = Path(ENGINE, "planted.rs")
    write(TREE / planted, planted.read_bytes() + IS_MUTATED.encode())
    done = []
    for name in sorted({mutant["file"] for mutant in mutants}):
        source = Path(name).read_bytes()
        tree, edits = PARSER.parse(source), []
        for mutant in (m for m in mutants if m["file"] == name):
            if edit := edit_of(mutant, source, tree):
                edits.append(edit)
                done.append(mutant)
        write(TREE / name, rendered(source, edits, 0, len(source)))
    return done


def cargo(*arguments):
    environment = os.environ | {"CARGO_TARGET_DIR": str(OUT / "build"), "RUSTFLAGS": "--cap-lints=allow"}
    return subprocess.run(
        ["cargo", *arguments, "--message-format=json"], cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def not_compiled(mutants):
    """Numbers of the mutants in lines that the compiler refuses."""
    ran = cargo("check", "-p", "millpond", "--lib")
    if ran.returncode == 0:
        return set()
    refused = set()
    for line in ran.stdout.splitlines():
        message = json.loads(line).get("message") or {}
        if message.get("level") != "error":
            continue
        for span in message.get("spans", []):
            # A macro of the standard library is elsewhere.
            if not (TREE / span["file_name"]).is_file():
                continue
            lines = (TREE / span["file_name"]).read_text().splitlines()[span["line_start"] - 1 : span["line_end"]]
            refused |= {int(n) for text in lines for n in re.findall(r"is_mutated\((\d+)\)", text)}
    if not refused & {mutant["number"] for mutant in mutants}:
        sys.exit("mutants: the tree is not compiled, and no mutant is the reason: see cargo check in " + str(TREE))
    return refused


def build(mutants, count):
    """Builds the tests with the first `count` that compile; returns these, and the test programs."""
    copy_tree()
    waiting, taken = list(mutants), []
    while True:
        while len(taken) < count and waiting:
            taken.append(waiting.pop(0))
        written = instrument(taken)
        refused = not_compiled(written)
        kept = [mutant for mutant in written if mutant["number"] not in refused]
        print(f"mutants: {len(kept)} of {len(taken)} can be built", flush=True)
        if len(kept) == len(taken):
            break
        taken = kept
    ran = cargo("test", "-p", "millpond", "--lib", "--test", "it", "--no-run")
    programs = {}
    for line in ran.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            programs[message["target"]["name"]] = message["executable"]
    if ran.returncode != 0:
        sys.exit("mutants: the tests are not built: see cargo test in " + str(TREE))
    return taken, programs


def limited():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def cpu_seconds(pid):
    """What a process has had of the CPU: it does not depend on what else the machine does."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reached_by(program, filters):
    """By test: the seconds of CPU that it takes without a mutant, and the mutants whose place its threads come to."""
    listed = subprocess.run([program, "--list", *filters], check=True, capture_output=True, text=True).stdout
    tests, reached = re.findall(r"^(\S+): test$", listed, re.MULTILINE), OUT / "reached.txt"
    by_test = {}
    for test in tests:
        reached.write_text("")
        failed, took = run(program, ["--exact", test], None, 36000, {"MILLPOND_REACHED": str(reached)})
        if failed:
            sys.exit(f"mutants: without one {failed} fails: see {OUT}/out.txt")
        by_test[test] = took, {int(number) for number in reached.read_text().split()}
    return by_test


def run(program, filters, mutant, cpu_max, also={}):
    """What stopped it: the first test that failed, `time`, `hang`, how it ended, or `None`; and the CPU it took."""
    environment = os.environ | {"RUST_BACKTRACE": "0"} | also
    if mutant is not None:
        environment["MILLPOND_MUTANT"] = str(mutant)
    log = OUT / "out.txt"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [program, "--test-threads=2", *filters], cwd=TREE / "crates/millpond", env=environment, stdout=out,
            stderr=subprocess.STDOUT, preexec_fn=limited,
        )  # fmt: skip
    took = moved = 0.0
    moved_at = time.monotonic()
    while True:
        time.sleep(0.05)
        took = cpu_seconds(child.pid)
        ended = child.poll()
        failed = re.search(rb"^test (\S+).* \.\.\. FAILED$", log.read_bytes(), re.MULTILINE)
        if took > moved + 1:
            moved, moved_at = took, time.monotonic()
        if failed:
            by = failed[1].decode()
        elif ended is not None:
            by = f"status {ended}" if ended != 0 else None
        elif took > cpu_max:
            by = "time"
        elif time.monotonic() - moved_at > HANGS_AFTER_S:
            by = "hang"
        else:
            continue
        break
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    return by, took


def main():
    count, keys = int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:]
    os.chdir(Path(__file__).resolve().parent.parent)
    mutants = listed()
    for number, mutant in enumerate(mutants):
        mutant["number"] = number
    print(f"mutants: {len(mutants)} in {', '.join(ROOMS)}; of these {count} are sampled", flush=True)
    sample, programs = build(mutants, count)
    # The tests of a mutant's room, those of the other files, then crashes, as `make test` samples them.
    steps = {
        room: [("millpond", [f"{room}::"]), ("millpond", []), ("it", tests)] for room, tests in ROOMS.items()
    }
    known = dict(line.split("\t", 1) for line in RESULTS.read_text().splitlines()) if RESULTS.exists() else {}
    # Tests may have been added since a mutant survived, and the one that caught it may be gone.
    tests = set()
    for program in programs.values():
        there = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
        tests |= set(re.findall(r"^(\S+): test$", there, re.MULTILINE))

    def is_caught(mutant):
        by = known[mutant["key"]].split("\t")[2] if mutant["key"] in known else "SURVIVED"
        return by in tests or by in ("time", "hang") or by.startswith("status ")

    left = [m for m in sample if (m["key"] in keys if keys else not is_caught(m))]
    limits = {}

    def ended(mutant, by, took):
        left.remove(mutant)
        line = "\t".join([mutant["key"], mutant["where"], mutant["name"], by, f"{took:.1f} s"])
        with RESULTS.open("a") as out:
            out.write(line + "\n")
        print(f"{mutant['number']:5} {mutant['where']}: {mutant['name']}: {by} ({took:.1f} s)", flush=True)

    # All of them step by step: the first ones are fast and catch most.
    for step in range(3):
        for mutant in list(left):
            room = mutant["file"].removeprefix(ENGINE + "/").split("/")[0]
            program, filters = steps[room][step]
            if (program, *filters) not in limits:
                failed, took = run(programs[program], filters, None, 36000)
                if failed:
                    sys.exit(f"mutants: without one {failed} fails: see {OUT}/out.txt")
                print(f"mutants: {program} {' '.join(filters)}: {took:.0f} s of CPU without a mutant", flush=True)
                limits[(program, *filters)] = 20 + 10 * took
            by, took = run(programs[program], filters, mutant["number"], limits[(program, *filters)])
            if by:
                ended(mutant, by, took)
        print(f"mutants: {len(left)} left after step {step + 1}: {' '.join(str(m['number']) for m in left)}", flush=True)
    # Minutes each: only the tests that come to the mutant's place, the short ones first.
    by_test = reached_by(programs["it"], ["crash_matrix"]) if left else {}
    for mutant in list(left):
        tests = sorted((took, test) for test, (took, reached) in by_test.items() if mutant["number"] in reached)
        by, all_took = None, 0.0
        for alone, test in tests:
            by, took = run(programs["it"], ["--exact", test], mutant["number"], 20 + 10 * alone)
            all_took += took
            if by:
                break
        ended(mutant, by or f"SURVIVED {len(tests)} crash tests", all_took)


if __name__ == "__main__":
    main()
