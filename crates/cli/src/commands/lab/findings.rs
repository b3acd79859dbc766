//! The findings of an experiment: each setting's rounds, and a verdict on each claim.

use serde::Serialize;

use super::disturbance::{Beside, Disturbance};
use super::outcome::{Figures, Outcome, where_slow};

/// The findings of an experiment.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The experiment's set-up, in a few sentences.
    pub(super) how: String,
    pub(super) settings: Vec<Setting>,
    /// Names of the shown phases, in order.
    pub(super) phases: Vec<String>,
    /// A counter that the table shows beside the stalls, and its heading.
    pub(super) loops: Option<(&'static str, &'static str)>,
    pub(super) verdicts: Vec<Verdict>,
    /// Lines that explain an observation.
    pub(super) notes: Vec<String>,
}

/// One setting, and the outcomes of its rounds.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) is_default: bool,
    /// Options that are not the default.
    pub(super) options: Vec<(String, String)>,
    /// The phases' outcomes, by round.
    pub(super) rounds: Vec<Vec<Outcome>>,
}

/// Whether a claim holds.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) claim: String,
    /// The text that makes the claim, or `ours`.
    pub(super) source: &'static str,
    pub(super) seen: String,
    pub(super) holds: bool,
    /// The subject of the claim.
    pub(super) about: About,
    /// For a claim that does not hold: the disturbance of its runs that makes it inconclusive.
    pub(super) inconclusive: Option<Disturbance>,
}

/// The subject of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum About {
    /// Classic settings: that they behave as the texts say.
    Classic,
    /// Millpond with its defaults, alone or beside classic settings.
    Millpond,
}

/// Whether claims hold; the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    Yes,
    /// Inconclusive, because of the machine.
    Unknown,
    No,
}

impl Verdict {
    /// Whether it holds.
    pub(super) fn held(&self) -> Held {
        match (self.holds, self.inconclusive) {
            (true, _) => Held::Yes,
            (false, Some(_)) => Held::Unknown,
            (false, None) => Held::No,
        }
    }
}

/// The number of claims that hold: about classic settings, and about Millpond.
pub(super) fn counted<'v>(verdicts: impl Iterator<Item = &'v Verdict> + Clone) -> String {
    let of = |about: About, name: &str| {
        let own = verdicts.clone().filter(move |verdict| verdict.about == about);
        let count = |held: Held| own.clone().filter(|verdict| verdict.held() == held).count();
        let open = match count(Held::Unknown) {
            0 => String::new(),
            open => format!(", {open} inconclusive"),
        };
        format!("{name}: {} of {} claims hold{open}", count(Held::Yes), own.clone().count())
    };
    format!("{}; {}", of(About::Classic, "classic settings"), of(About::Millpond, "Millpond"))
}

impl Setting {
    /// The outcomes of a phase, one per round.
    pub(super) fn phase(&self, name: &str) -> Vec<&Outcome> {
        self.rounds.iter().flatten().filter(|outcome| outcome.phase == name).collect()
    }

    /// Whether the phase was run.
    pub(super) fn has(&self, phase: &str) -> bool {
        self.rounds.iter().flatten().any(|outcome| outcome.phase == phase)
    }

    /// Medians over the rounds.
    pub(super) fn figures(&self, phase: &str) -> Figures {
        let of: Vec<Figures> = self.phase(phase).iter().map(|outcome| outcome.figures).collect();
        Figures::median(&of)
    }

    /// The median of a value over the rounds.
    pub(super) fn median(&self, phase: &str, of: impl Fn(&Outcome) -> f64) -> f64 {
        super::outcome::median(self.phase(phase).into_iter().map(of))
    }

    /// The largest value over the rounds: 0 means that it happened in no round.
    pub(super) fn most(&self, phase: &str, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.phase(phase).into_iter().map(of).fold(0.0, f64::max)
    }

    /// The least value over the rounds; 0 without rounds.
    pub(super) fn least(&self, phase: &str, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.phase(phase).into_iter().map(of).reduce(f64::min).unwrap_or(0.0)
    }

    /// The canaries' worst figures beside the phase in any round; `None` if none watched.
    pub(super) fn machine(&self, phase: &str) -> Option<Beside> {
        let all = self.phase(phase).into_iter().filter_map(|run| run.machine);
        all.reduce(|a, b| Beside {
            pair_ms: a.pair_ms.max(b.pair_ms),
            wake_ms: a.wake_ms.max(b.wake_ms),
            device_stop_ms: a.device_stop_ms.max(b.device_stop_ms),
            device_stopped_ms: a.device_stopped_ms.max(b.device_stopped_ms),
            cpu_stop_ms: a.cpu_stop_ms.max(b.cpu_stop_ms),
            cpu_stopped_ms: a.cpu_stopped_ms.max(b.cpu_stopped_ms),
        })
    }

    /// Where the slowest operations spent their time, in words, the largest part first: as many whole parts as fit into
    /// `columns`.
    pub(super) fn slow_text(&self, phase: &str, columns: usize) -> String {
        let mut text = String::new();
        for (name, share) in where_slow(&self.phase(phase)).iter().filter(|(_, share)| *share >= 0.5) {
            let comma = if text.is_empty() { "" } else { ", " };
            let part = format!("{comma}{name} {share:.0} %");
            if text.chars().count() + part.chars().count() > columns {
                break;
            }
            text.push_str(&part);
        }
        if text.is_empty() { "-".to_owned() } else { text }
    }
}

impl Findings {
    /// The setting of this name, which must exist.
    pub(super) fn setting(&self, name: &str) -> &Setting {
        self.settings.iter().find(|setting| setting.name == name).expect("an experiment names its own settings")
    }

    /// The default.
    pub(super) fn default(&self) -> &Setting {
        self.settings.iter().find(|setting| setting.is_default).expect("every experiment has the default")
    }

    /// The classic settings.
    pub(super) fn classic(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| !setting.is_default)
    }

    /// Notes whether a claim holds.
    pub(super) fn judge(
        &mut self,
        source: &'static str,
        claim: impl Into<String>,
        holds: bool,
        seen: impl Into<String>,
    ) {
        let (claim, seen) = (claim.into(), seen.into());
        let text = format!("{claim}; {seen}");
        let names_classic = self.classic().any(|setting| text.contains(setting.name.trim()));
        let is_ours = source == "ours" && (text.contains("default") || !names_classic);
        self.note_verdict(source, claim, holds, seen, if is_ours { About::Millpond } else { About::Classic });
    }

    /// Notes whether a claim about `about` holds. A failing claim is inconclusive if the machine stood still beside a
    /// run of the settings that the claim names; if it names none, beside any run.
    fn note_verdict(&mut self, source: &'static str, claim: String, holds: bool, seen: String, about: About) {
        let text = format!("{claim}; {seen}");
        let is_named =
            |setting: &&Setting| (setting.is_default && about == About::Millpond) || text.contains(setting.name.trim());
        let named: Vec<&Setting> = self.settings.iter().filter(is_named).collect();
        let inconclusive = match (holds, named.is_empty()) {
            (true, _) => None,
            (false, false) => Disturbance::of(named.into_iter()),
            (false, true) => Disturbance::of(self.settings.iter()),
        };
        self.verdicts.push(Verdict { claim, source, seen, holds, about, inconclusive });
    }

    /// The default's throughput is at least that of the best classic setting.
    pub(super) fn judge_throughput(&mut self, phase: &str) {
        let own = self.default().figures(phase).per_s;
        let per_s = |setting: &&Setting| setting.figures(phase).per_s;
        let Some(best) = self.classic().max_by(|a, b| per_s(a).total_cmp(&per_s(b))) else { return };
        let (name, best) = (best.name.trim().to_owned(), per_s(&best));
        let seen = format!("{own:.0}/s, {name} {best:.0}/s: {:.2} times", own / best.max(1.0));
        let claim = format!("{}the default is no slower than the best classic setting", self.when(phase));
        self.judge("ours", claim, own >= best, seen);
    }

    /// Prefix of a claim that names its phase; empty for the first phase.
    fn when(&self, phase: &str) -> String {
        let is_first = self.phases.first().is_none_or(|first| first == phase);
        if is_first { String::new() } else { format!("{phase}: ") }
    }

    /// The default does all arrivals of a fixed rate. Arrivals are random, the same for all settings, and within 3 % of
    /// the requested rate.
    pub(super) fn judge_offered(&mut self, phase: &str, per_s: f64) {
        let of = |setting: &Setting| format!("{} {:.0}/s", setting.name.trim(), setting.figures(phase).per_s);
        let seen: Vec<String> = self.settings.iter().filter(|setting| setting.has(phase)).map(of).collect();
        let best = self.classic().map(|setting| setting.figures(phase).per_s).fold(0.0, f64::max);
        let own = self.default().least(phase, |run| run.figures.per_s);
        let is_done = own >= per_s * 0.97 && own >= best * 0.995;
        let claim = format!("the default does all of the {per_s:.0} a second that arrive, to 3 %");
        self.judge("ours", claim, is_done, seen.join(", "));
    }

    /// The default's slowest operation takes at most a tenth of that of one classic setting, the one of the text. The
    /// worst of many settings would be no fair measure.
    pub(super) fn judge_slowest(&mut self, phase: &str, against: &str) {
        let own = self.default().figures(phase).slowest_ms;
        let classic = self.setting(against).figures(phase).slowest_ms;
        let seen = format!("{own:.1} ms and {classic:.1} ms: 1 to {:.1}", classic / own.max(1e-3));
        let when = self.when(phase);
        let claim = format!("{when}the slowest operation takes at most a tenth of that of {}", against.trim());
        self.note_verdict("ours", claim, own * 10.0 <= classic, seen, About::Millpond);
    }

    /// The stall is explained: the stall log of `setting` has stalls in each round. `class` has at least half of the
    /// time in nine of ten of them, and of the time of all together.
    pub(super) fn judge_explained(&mut self, setting: &str, phase: &str, class: &str) {
        let of = self.setting(setting);
        let (share, lines) = (
            of.least(phase, |run| run.stalled.percent(class)),
            of.least(phase, |run| run.stalled.mostly_percent(class)),
        );
        let stalls = of.least(phase, |run| run.stalled.operations as f64);
        let claim =
            format!("the stall log alone explains the stall of {}: {class} has half of nine in ten", setting.trim());
        let seen = format!("half or more of {lines:.0} % of {stalls:.0} stalls, {share:.0} % of their time");
        // The text's comments ask for such a log, for waits for a frame.
        let source = if class == "free_frame" { "text 000, comments" } else { "ours" };
        self.judge(source, claim, stalls > 0.0 && lines >= 90.0 && share >= 50.0, seen);
    }

    /// No stall of the default is of the kind that the experiment is about: none has most of its time in `class`.
    pub(super) fn judge_free_of(&mut self, phase: &str, class: &str) {
        let own = self.default();
        let mostly = own.most(phase, |run| run.mostly.get(class).copied().unwrap_or_default() as f64);
        let all = own.most(phase, |run| run.figures.stalls);
        let seen = format!("{mostly:.0} of {all:.0} stalls");
        self.judge("ours", format!("the default has no stall of which {class} is half or more"), mostly == 0.0, seen);
    }

    /// A server bears the load of `alone`, its clients stall beside the activity in `phase`, and the stall log says
    /// why.
    pub(super) fn judge_beside(&mut self, name: &str, alone: &str, phase: &str) {
        let of = |phase| {
            let setting = self.setting(name);
            (setting.figures(phase).slowest_ms, setting.median(phase, |run| run.stalled.operations as f64))
        };
        let ((alone_ms, stalls_alone), (slowest_ms, stalls)) = (of(alone), of(phase));
        self.judge(
            "what users report",
            format!("{name} bears the load without a stall, and stalls beside it"),
            stalls_alone == 0.0 && stalls > 0.0,
            format!(
                "slowest {alone_ms:.1} ms, {stalls_alone:.0} stalls; beside it {slowest_ms:.0} ms, {stalls:.0} stalls"
            ),
        );
        self.judge_explained(name, phase, "free_frame");
    }

    /// A server bears the load of `alone`, and of `phase` with an activity beside it: no round has a stall.
    pub(super) fn judge_borne(&mut self, name: &str, alone: &str, phase: &str) {
        let most = |phase, of: fn(&Outcome) -> f64| self.setting(name).most(phase, of);
        let [stalls_alone, stalls] = [alone, phase].map(|phase| most(phase, |run| run.stalled.operations as f64));
        let slowest_ms = most(phase, |run| run.figures.slowest_ms);
        self.judge(
            "ours",
            format!(
                "{name}, whose users find frames by their own work, bears the load, and what is beside it, without a stall"
            ),
            stalls_alone == 0.0 && stalls == 0.0,
            format!("{stalls_alone:.0} and {stalls:.0} stalls, slowest {slowest_ms:.1} ms"),
        );
    }

    /// Whether all claims hold.
    pub(super) fn answer(&self) -> Held {
        self.verdicts.iter().map(Verdict::held).max().unwrap_or(Held::Yes)
    }
}
