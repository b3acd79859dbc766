//! The frame of every page: head, style, colours.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::COLOURS;

/// The page's style, but for the charts' colours.
const STYLE: &str = include_str!("page.css");

/// A page with this title and body.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                // Written out with a closing slash, so that the page is also XML.
                (PreEscaped("<meta charset=\"utf-8\"/>"))
                (PreEscaped("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"))
                title { "millpond " (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(chart_colours())) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// Rules that give the charts' colours to the page.
fn chart_colours() -> String {
    let rule = |(colour, name): (plotters::style::RGBColor, &str)| {
        let code = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        format!("svg [fill=\"{code}\"]{{fill:var(--{name})}}svg [stroke=\"{code}\"]{{stroke:var(--{name})}}")
    };
    COLOURS.map(rule).concat()
}
