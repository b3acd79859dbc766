//! The house's rules that a compiler does not know: layers, sizes, invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bottom up: a module uses only those before it.
const LAYERS: [&str; 26] = [
    "base",
    "pace",
    "io",
    "redo",
    "store",
    "pool",
    "core",
    "mtr",
    "btree",
    "txn",
    "recovery",
    "options",
    "schema",
    "engine",
    "ddl",
    "read",
    "undo",
    "write",
    "background",
    "load",
    "backup",
    "check",
    "observe",
    "open",
    "api",
    "tools",
];

/// The lines of a file up to its module of tests.
fn own_lines(text: &str) -> impl Iterator<Item = &str> {
    let is_tests = |(line, next): (&str, &str)| {
        let line = line.trim_start();
        line.starts_with("#[cfg(") && line.contains("test") && next.contains("mod tests")
    };
    let end = text.lines().zip(text.lines().skip(1)).position(is_tests).unwrap_or(usize::MAX);
    text.lines().take(end)
}

/// Those of them that are no comments.
fn code_of(text: &str) -> impl Iterator<Item = &str> {
    own_lines(text).filter(|line| !line.trim_start().starts_with("//"))
}

/// The paths that a file imports, or names from the crate's root or its parent on. Groups are expanded.
fn paths_of(text: &str) -> Vec<String> {
    fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
        let Some((head, group)) = tree.split_once('{') else {
            paths.push(format!("{before}{}", tree.split(" as ").next().unwrap_or_default().trim()));
            return;
        };
        let (mut depth, mut from) = (0, 0);
        let group = group.rsplit_once('}').expect("a group ends").0;
        for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let one = group[from..at].trim();
                    if !one.is_empty() {
                        expand(&format!("{before}{}", head.trim()), one, paths);
                    }
                    from = at + 1;
                }
                _ => {}
            }
        }
    }
    let (mut paths, mut import) = (Vec::new(), String::new());
    for line in code_of(text) {
        let begins = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let begin = begins.iter().find_map(|begin| line.trim_start().strip_prefix(begin));
        if !import.is_empty() || begin.is_some() {
            import += begin.unwrap_or(line);
            if let Some((tree, _)) = import.split_once(';') {
                expand("", tree, &mut paths);
                import.clear();
            }
            continue;
        }
        for root in ["crate::", "super::", "self::"] {
            for (at, _) in line.match_indices(root) {
                let is_first = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
                let rest = &line[at..];
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
                paths.extend(is_first.then(|| rest[..end].to_owned()));
            }
        }
    }
    paths
}

fn sources() -> Vec<(PathBuf, String)> {
    fn collect(dir: &Path, all: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(dir).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("read");
                all.push((path, text));
            }
        }
    }
    let mut all = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    all
}

fn layer_of(path: &Path) -> Option<usize> {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("a source");
    let first = below.components().next()?.as_os_str().to_str()?;
    LAYERS.iter().position(|layer| *layer == first)
}

#[test]
fn a_module_uses_only_modules_below_it() {
    // No layers: the tests' own, and what every layer may use.
    let beside = ["planted", "simulation"];
    let mut uses = 0;
    for (path, text) in sources() {
        let Some(own) = layer_of(&path) else { continue };
        for used in paths_of(&text) {
            let Some(name) = used.strip_prefix("crate::").and_then(|used| used.split("::").next()) else { continue };
            match LAYERS.iter().position(|layer| *layer == name) {
                Some(used) => {
                    uses += 1;
                    assert!(used <= own, "{}: {} may not use {name}", path.display(), LAYERS[own]);
                }
                // The crate's face is made of the uppermost layers.
                None => assert!(beside.contains(&name), "{}: uses {used} from the root", path.display()),
            }
        }
    }
    assert!(uses > 1000, "only {uses} uses seen");
}

/// The files of the same folder that a file imports, by their names; `mod` is the folder's own.
fn siblings_of(folder: &str, own: &str, text: &str, names: &BTreeSet<String>) -> BTreeSet<String> {
    let folder: Vec<&str> = folder.split('/').collect();
    let module: Vec<&str> = folder.iter().copied().chain((own != "mod").then_some(own)).collect();
    let mut used = BTreeSet::new();
    for path in paths_of(text) {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base = match parts.remove(0) {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len() - 1].to_vec(),
            _ => continue,
        };
        while parts.first() == Some(&"super") {
            parts.remove(0);
            base.pop();
        }
        base.extend(parts);
        let Some(name) = base.strip_prefix(&folder[..]).and_then(|rest| rest.first()) else { continue };
        used.insert(if names.contains(*name) { (*name).to_owned() } else { "mod".to_owned() });
    }
    used.retain(|name| names.contains(name) && name != own);
    used
}

/// Whether files import each other in a circle: what imports nothing that is left is taken away, until none is left.
fn has_circle(mut uses: BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    loop {
        let free: Vec<String> = uses.iter().filter(|(_, used)| used.is_empty()).map(|(name, _)| name.clone()).collect();
        if free.is_empty() {
            return (!uses.is_empty()).then(|| uses.into_keys().collect());
        }
        uses.retain(|name, _| !free.contains(name));
        uses.values_mut().for_each(|used| used.retain(|name| !free.contains(name)));
    }
}

#[test]
fn files_of_a_folder_import_each_other_in_no_circle() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in sources() {
        let below = path.strip_prefix(&src).expect("a source");
        let folder = below.parent().expect("a folder").to_string_lossy().into_owned();
        let name = below.file_stem().expect("a name").to_string_lossy().into_owned();
        if !folder.is_empty() && !name.ends_with("_tests") {
            folders.entry(folder).or_default().push((name, text));
        }
    }
    assert!(folders.len() > 25, "only {} folders seen", folders.len());
    for (folder, files) in folders {
        let names: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
        let uses = files.iter().map(|(name, text)| (name.clone(), siblings_of(&folder, name, text, &names))).collect();
        let circle = has_circle(uses);
        assert_eq!(circle, None, "{folder}: these import each other in a circle, or lead to one");
    }
}

/// The ids of invariants in a text: `REDO-5`, and each of `REDO-1..6`.
fn invariants_in(text: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.')) {
        let Some((area, numbers)) = word.rsplit_once('-') else { continue };
        let (first, last) = numbers.trim_end_matches('.').split_once("..").unwrap_or((numbers, numbers));
        let is_area = area.len() > 1 && area.chars().all(|c| c.is_ascii_uppercase() || c == '-');
        if let (true, Ok(first), Ok(last)) = (is_area, first.parse::<u32>(), last.trim_end_matches('.').parse::<u32>())
        {
            ids.extend((first..=last).map(|number| format!("{area}-{number}")));
        }
    }
    ids
}

#[test]
fn invariants_of_code_and_of_architecture_are_the_same() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let listed = invariants_in(&std::fs::read_to_string(page).expect("read"));
    let all = sources();
    // A checksum's name looks like one.
    let quoted = all.iter().flat_map(|(_, text)| invariants_in(text)).filter(|id| id != "CRC-32");
    let quoted: BTreeSet<String> = quoted.collect();
    assert!(quoted.len() > 100, "only {} seen", quoted.len());
    assert_eq!(quoted.difference(&listed).collect::<Vec<_>>(), [""; 0], "in code, not in ARCHITECTURE");
    assert_eq!(listed.difference(&quoted).collect::<Vec<_>>(), [""; 0], "in ARCHITECTURE, not in code");
}

#[test]
fn threads_clocks_and_locks_come_from_the_seam() {
    for (path, text) in sources() {
        let seam =
            ["sync.rs", "clock.rs", "scheduler.rs"].iter().any(|name| path.ends_with(Path::new("base").join(name)));
        let seam = seam || path.to_string_lossy().ends_with("_tests.rs");
        for line in own_lines(&text).filter(|_| !seam) {
            for forbidden in
                ["std::thread", "Instant::now", "SystemTime", "parking_lot::", "std::sync::Mutex", "std::sync::RwLock"]
            {
                let starts_none = ["std::thread::Result", "std::thread::panicking"];
                let doc = line.trim_start().starts_with("//") || starts_none.iter().any(|name| line.contains(name));
                assert!(
                    doc || !line.contains(forbidden),
                    "{}: {forbidden} outside of base::sync and base::clock",
                    path.display()
                );
            }
        }
    }
}

/// LAW-2: no wait ends by a timer. Exceptions: the keeper's ticks, the log thread's next background commit, payments,
/// waits for locks that a caller bounds, the classic policies, and the rests of the thread that makes files for a large
/// log.
#[test]
fn only_the_keeper_and_listed_files_wait_for_a_clock() {
    let mut seen = 0;
    for (path, text) in sources() {
        let file = path.file_name().expect("a file").to_string_lossy().into_owned();
        if file.ends_with("_tests.rs") {
            continue;
        }
        for line in own_lines(&text) {
            let timed = [
                "wait_until(",
                "wait_for(",
                "wait_timeout",
                "park_until",
                "park_timeout",
                "sleep(",
                "nap(",
                "nap_latched(",
                "end.rest(",
            ];
            let code = !line.trim_start().starts_with("//");
            for timer in timed.iter().filter(|timer| code && line.contains(**timer)) {
                seen += 1;
                let ticks = ["sync.rs", "scheduler.rs", "simulated.rs", "slow.rs", "bell.rs", "keeper.rs", "paying.rs"];
                let of_locks = ["handoff.rs"];
                // What they are known for.
                let of_pool = ["backoff.rs", "threads.rs", "lru_managers.rs", "page_cleaners.rs"];
                let of_log = ["group_commit.rs", "log_events.rs", "pipeline_threads.rs", "recent_closed.rs"];
                let files = ["log_resize.rs"];
                assert!(
                    [&ticks[..], &of_locks, &of_pool, &of_log, &files].concat().contains(&file.as_str()),
                    "LAW-2: {timer} in {}",
                    path.display()
                );
            }
        }
    }
    assert!(seen >= 3, "the keeper's is seen");
}

/// The one policy that breaks LAW-1 says so.
#[test]
fn only_the_closer_window_sleeps_under_latches() {
    let sleepers: Vec<_> = sources()
        .iter()
        .filter(|(_, text)| text.contains("sync::nap_latched("))
        .map(|(path, text)| (path.file_name().map(ToOwned::to_owned), text.matches("nap_latched(").count()))
        .collect();
    assert_eq!(sleepers, [(Some("recent_closed.rs".into()), 1)]);
}

/// A backup is the last thing: an error that sends there says before what may help.
#[test]
fn errors_name_what_helps_before_a_backup() {
    let helps = [
        "`millpond rebuild",
        "`millpond check`",
        "drop the index",
        "put back",
        "restore it",
        "restore them",
        "use force",
    ];
    let mut seen = 0;
    for (path, text) in sources() {
        let code = own_lines(&text).filter(|line| line.contains('"'));
        for line in code.filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!line.contains("from a backup"), "name the command, in {}: {line}", path.display());
            if !line.contains("a backup (`millpond restore`)") {
                continue;
            }
            seen += 1;
            assert!(helps.iter().any(|help| line.contains(help)), "{}: {line}", path.display());
        }
    }
    assert!(seen > 10, "only {seen} seen");
}

#[test]
fn files_are_short_and_lines_are_not_wide() {
    for (path, text) in sources() {
        let own = own_lines(&text).count();
        assert!(own <= 600, "{} has {own} lines", path.display());
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.contains('"')) {
            assert!(line.chars().count() <= 120, "{}:{}: too wide", path.display(), number + 1);
        }
    }
}

#[test]
fn every_invariant_that_code_quotes_is_stated_at_a_module_head() {
    let all = sources();
    let heads: String = all
        .iter()
        .flat_map(|(_, text)| text.lines().filter(|line| line.starts_with("//! ")))
        .collect::<Vec<_>>()
        .join("\n");
    let mut quoted = 0;
    for (path, text) in &all {
        for line in text.lines().filter(|line| line.contains('"') && !line.starts_with("//!")) {
            for area in ["STORE-", "REDO-", "POOL-", "MTR-", "BTREE-", "WRITE-", "TXN-", "KEEPER-", "HANDOFF-", "LOAD-"]
            {
                for part in line.split(area).skip(1) {
                    let number: String = part.chars().take_while(char::is_ascii_digit).collect();
                    quoted += 1;
                    assert!(
                        heads.contains(&format!("{area}{number} ")),
                        "{}: {area}{number} is stated nowhere",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(quoted > 10, "only {quoted} quotes");
}

/// A bug that no script wakes shows nothing; one that no code has is found by nobody.
#[test]
fn the_bugs_that_are_planted_are_those_that_the_script_wakes() {
    let script = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/planted.sh"));
    let script = script.expect("read");
    let list = script.split_once("bugs=${*:-\"").and_then(|(_, rest)| rest.split_once('"')).expect("a list").0;
    let woken: BTreeSet<&str> = list.split(' ').collect();
    let all = sources();
    let calls = all.iter().flat_map(|(_, text)| text.split("planted!(\"").skip(1));
    let planted: BTreeSet<&str> = calls.filter_map(|call| Some(call.split_once('"')?.0)).collect();
    assert!(woken.len() > 50);
    assert_eq!(planted, woken);
}

/// Files and folders of the repository at or below `place` whose names end in `end`, but for build outputs.
fn files_below(place: &str, end: &str) -> Vec<PathBuf> {
    fn collect(path: PathBuf, end: &str, files: &mut Vec<PathBuf>) {
        if !path.is_dir() {
            files.extend(path.to_string_lossy().ends_with(end).then_some(path));
            return;
        }
        for entry in std::fs::read_dir(path).expect("listed") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "target" && !name.starts_with('.') {
                collect(entry.path(), end, files);
            }
        }
    }
    let mut files = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(place), end, &mut files);
    files
}

/// The subject of a sentence is a named actor: no pronoun for a thread, a page or a person.
#[test]
fn prose_names_its_actors() {
    let mut files: Vec<PathBuf> = ["crates", "docs", "fuzz"]
        .iter()
        .flat_map(|place| [".rs", ".md"].map(|end| files_below(place, end)))
        .flatten()
        .filter(|path| !path.ends_with("tidy.rs"))
        .collect();
    files.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].iter().flat_map(|name| files_below(name, ".md")));
    assert!(files.len() > 400, "only {} files seen", files.len());
    let pronouns = ["who", "whoever", "whom", "he", "his", "him"];
    for path in files {
        let text = std::fs::read_to_string(&path).expect("read");
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let found = words.find(|word| pronouns.contains(&word.to_lowercase().as_str()));
            assert_eq!(found, None, "{}:{}: name the actor", path.display(), number + 1);
        }
    }
}

/// The most words of a sentence in the documents.
const WORDS_MAX: usize = 25;

/// The sentences of a page's prose: no code, tables or headings. Links are their text, `code spans` one word.
fn sentences_of(page: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut is_code = false;
    for line in page.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let item = line.split_once(' ').filter(|(mark, _)| {
            ["*", "-"].contains(mark) || mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok())
        });
        if item.is_some() || is_fence || is_code || line.is_empty() || line.starts_with(['#', '|', '<']) {
            blocks.push(String::new());
        }
        if !(is_fence || is_code || line.starts_with(['#', '|', '<'])) {
            let block = blocks.last_mut().expect("there is one");
            block.push(' ');
            block.push_str(item.map_or(line, |(_, rest)| rest));
        }
    }
    blocks.iter().flat_map(|block| split_block(block)).collect()
}

/// The sentences of a paragraph or list item: they end with a full stop, a question or exclamation mark.
fn split_block(block: &str) -> Vec<String> {
    let prose: String =
        block.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "Code" } else { part }).collect();
    let mut text = String::new();
    for (at, part) in prose.split("](").enumerate() {
        // The target of a link ends with the first bracket.
        text.push_str(if at == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) });
    }
    let mut sentences = vec![String::new()];
    for word in text.replace(['*', '['], "").split_whitespace() {
        let last = sentences.last_mut().expect("there is one");
        let is_begin = !word.trim_start_matches(['(', '"']).starts_with(char::is_lowercase);
        if is_begin && last.trim_end_matches([')', '"']).ends_with(['.', '?', '!']) {
            sentences.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    sentences
}

#[test]
fn sentences_of_the_documents_are_short() {
    let pages =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs"].iter().flat_map(|place| files_below(place, ".md"));
    let (mut seen, mut long) = (0, Vec::new());
    for path in pages {
        for sentence in sentences_of(&std::fs::read_to_string(&path).expect("read")) {
            let words = sentence.split(' ').filter(|word| word.contains(char::is_alphanumeric)).count();
            seen += 1;
            if words > WORDS_MAX {
                long.push(format!("{}: {words} words: {sentence}", path.display()));
            }
        }
    }
    assert!(seen > 1000, "only {seen} sentences seen");
    assert!(long.is_empty(), "{} sentences have more than {WORDS_MAX} words:\n{}", long.len(), long.join("\n"));
}

/// The tests of a file, by their names: functions below an attribute such as `#[test]`.
fn tests_of(text: &str) -> Vec<&str> {
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        is_test |= ["#[test", "#[proptest"].iter().any(|attribute| line.starts_with(attribute));
        let words =
            ["pub ", "async ", "unsafe "].iter().fold(line, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        if let Some((name, _)) = words.strip_prefix("fn ").and_then(|rest| rest.split_once(['(', '<'])) {
            tests.extend(is_test.then_some(name));
            is_test = false;
        }
    }
    tests
}

/// A test's name is `subject_condition_outcome`, and its subject a named actor.
#[test]
fn test_names_are_short_and_name_their_actors() {
    let mut seen = 0;
    for path in files_below("crates", ".rs") {
        let text = std::fs::read_to_string(&path).expect("read");
        for name in tests_of(&text) {
            seen += 1;
            let pronouns = ["who", "whoever", "whom", "nobody", "everybody", "he", "his", "him"];
            let found = name.split('_').find(|word| pronouns.contains(word));
            assert_eq!(found, None, "{}: {name}: name the actor", path.display());
            assert!(name.len() <= 60, "{}: {name} has {} characters", path.display(), name.len());
        }
    }
    assert!(seen > 1000, "only {seen} tests seen");
}

/// A filter that no test has any more would let a planted bug pass unseen.
#[test]
fn filters_of_planted_bugs_name_tests() {
    let script = files_below("scripts", "planted.sh").pop().expect("the script");
    let script = std::fs::read_to_string(script).expect("read");
    let paths_below = |place: &str| -> Vec<String> {
        let tests = files_below(place, ".rs").into_iter().map(|path| {
            let text = std::fs::read_to_string(&path).expect("read");
            let path = path.with_extension("").to_string_lossy().replace('/', "::");
            let path = path.rsplit_once(&place.replace('/', "::")).expect("below it").1;
            tests_of(&text).iter().map(|name| format!("{path}::{name}")).collect::<Vec<_>>()
        });
        tests.flatten().collect()
    };
    let (of_it, of_lib) = (paths_below("crates/millpond/tests/it"), paths_below("crates/millpond/src"));
    let mut seen = 0;
    for (tests, filters) in script.split("tests=\"").skip(1).filter_map(|line| line.split_once("\" filter=\"")) {
        let paths = if tests.contains("--lib") { &of_lib } else { &of_it };
        for filter in filters.split('"').next().expect("an end").split(' ') {
            seen += 1;
            assert!(paths.iter().any(|path| path.contains(filter)), "{tests}: no test has {filter}");
        }
    }
    assert!(seen > 25, "only {seen} filters seen");
}
