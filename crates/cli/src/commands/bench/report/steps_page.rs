//! The page of the insert benchmark: all steps in a table, then each step in the form of a run.

use maud::{Markup, html};

use super::page::{Judged, device, ms, origin, rate, run, settings};
use crate::commands::bench::insert::{Facts, Ran, is_judged, kept};
use crate::report::charts::{grouped, number};
use crate::report::page;

/// The page of these steps.
pub(in crate::commands::bench) fn of_steps(facts: &Facts, ran: &[Ran]) -> String {
    let on = &facts.on;
    let clients = if on.tables == 1 { "1 client".to_owned() } else { format!("{} clients", on.tables) };
    let body = html! {
        h1 { (on.workload) ", " (clients) ", " (on.tables) " × " (grouped(on.table_size)) " rows" }
        @if let (Some(rows), Some(entries)) = (facts.rows_verified, facts.entries_verified) {
            p { (grouped(rows)) " rows at the end, and " (grouped(entries)) " index entries that agree with them" }
        }
        @if facts.interrupted { p.bad { "interrupted" } }
        (origin(on))
        (table(ran))
        @for ran in ran { (step(ran)) }
        @if let Some(last) = ran.last() { (device(on, &last.figures.figures, None)) }
        (settings(&on.settings))
    };
    page(&format!("bench: {}", on.workload), &body)
}

/// All steps.
fn table(ran: &[Ran]) -> Markup {
    let heads = ["seconds", "rows/s", "queries/s", "median tps", "worst tps", "slowest, ms"];
    html! {
        h2 { "Steps" }
        p.note { "Rows a second: inserted; of l.x index entries made." }
        table {
            tr { th { "step" } @for head in heads { th.number { (head) } } th { "rate beside" } }
            @for figures in ran.iter().map(|ran| &ran.figures) {
                @let of_run = &figures.figures;
                tr {
                    td { code { (figures.step) } }
                    td.number { (number(of_run.elapsed_s)) }
                    td.number { (number(figures.rows_inserted_per_s + figures.entries_made_per_s)) }
                    td.number { (number(of_run.queries_per_s)) }
                    td.number { (of_run.calm.map_or("-".to_owned(), |calm| number(calm.median_per_s))) }
                    td.number { (of_run.calm.map_or("-".to_owned(), |calm| number(calm.worst_per_s as f64))) }
                    td.number { (ms(of_run.latency_max_ms)) }
                    td class=(if figures.is_rate_kept == Some(false) { "bad" } else { "" }) { (kept(figures)) }
                }
            }
        }
    }
}

/// One step.
fn step(ran: &Ran) -> Markup {
    let figures = &ran.figures;
    html! {
        h1 { (figures.step) ": " (ran.step.what()) }
        p.note {
            @if figures.entries_made > 0 {
                (grouped(figures.entries_made)) " index entries made, " (rate(figures.entries_made_per_s)) " a second"
            } @else {
                (grouped(figures.rows_inserted)) " rows inserted, " (rate(figures.rows_inserted_per_s)) " a second; "
                (grouped(figures.rows_deleted)) " deleted; " (figures.rows_per_commit) " in a transaction"
            }
        }
        @if let (Some(wanted), Some(percentile_ms), Some(max_ms)) =
            (figures.rows_wanted_per_s, figures.beside_latency_percentile_ms, figures.beside_latency_max_ms)
        {
            p class=(if figures.is_rate_kept == Some(false) { "bad" } else { "good" }) {
                "Beside the queries " (number(wanted)) " rows a second were to be inserted, a rate that was "
                (if figures.is_rate_kept == Some(false) { "not kept" } else { "kept" }) "; "
                (figures.figures.latency_percentile) " % of these transactions within " (ms(percentile_ms))
                " ms of their arrival, the slowest " (ms(max_ms)) " ms."
            }
        }
        (run(&figures.figures, if is_judged(ran.step) { Judged::Yes } else { Judged::No }, &ran.done.finished))
    }
}
