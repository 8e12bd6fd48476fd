//! Draws the results as SVG, with a bar for each strategy and action. The picture works on light and on dark
//! pages.

use std::fmt::Write;

use bytesize::ByteSize;

use super::{Report, StrategyReport, tally::Operations};

/// The height of a row, the position of the first row, the width of the names of strategies, and the total width.
const ROW: f64 = 26.0;
const TOP: f64 = 92.0;
const NAMES: f64 = 250.0;
const WIDTH: f64 = 1060.0;

/// A column of bars: its title, its action, its position, and the width of one operation.
struct Column {
    head: &'static str,
    what: &'static str,
    x: f64,
    unit: f64,
}

const COLUMNS: [Column; 4] = [
    Column { head: "a later revision is written", what: "write a later revision", x: NAMES, unit: 30.0 },
    Column { head: "current read", what: "read current", x: NAMES + 280.0, unit: 10.0 },
    Column { head: "recent read", what: "read recent", x: NAMES + 410.0, unit: 10.0 },
    Column { head: "historical read", what: "read historical", x: NAMES + 540.0, unit: 10.0 },
];

/// The position of the bars for stored data, and the width of the longest bar.
const STORED: (f64, f64) = (NAMES + 680.0, 70.0);

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .head { font-weight: 600 } .small { font-size: 11px; fill: #59636e }
  .read { fill: #2f6feb } .write { fill: #d9822b } .delete { fill: #c0392b } .kept { fill: #2f6feb }
  .expiring { fill: #d9822b } .line { stroke: #d1d9e0 } .ground { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .ground { fill: #0d1117 } .line { stroke: #3d444d }
    .read, .kept { fill: #58a6ff } .write, .expiring { fill: #e3a04f } .delete { fill: #ff7b72 }
  }
";

/// Draws the results.
pub fn draw(report: &Report) -> String {
    let height = TOP + ROW * report.strategies.len() as f64 + 50.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Operations of each strategy\">\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
    );
    heads(&mut svg, report);
    let most = report.strategies.iter().map(body_bytes).max().unwrap_or(1).max(1);
    for (index, strategy) in report.strategies.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"16\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\n<text x=\"16\" y=\"{}\">{}</text>",
            WIDTH - 16.0,
            y + 17.0,
            strategy.name
        );
        for column in &COLUMNS {
            if let Some(done) = strategy.done.iter().find(|done| done.what == column.what) {
                operations(&mut svg, column, y, done.core, done.times == 0);
            }
        }
        size(&mut svg, strategy, y, most);
    }
    let _ = writeln!(
        svg,
        "<text class=\"small\" x=\"16\" y=\"{}\">Mean of {} edits of {} pages on {}, of one property. The \
         overhead (indexes, titles, retention queue) is the same for all, and not shown.</text>\n</svg>",
        height - 18.0,
        report.edits,
        report.pages,
        report.backend
    );
    svg
}

fn heads(svg: &mut String, report: &Report) {
    let _ = writeln!(
        svg,
        "<text class=\"head\" x=\"16\" y=\"28\">Operations of each strategy, replaying {} edits</text>",
        report.edits
    );
    let mut x = 16.0;
    for (class, name) in [("read", "reads"), ("write", "writes"), ("delete", "deletes")] {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"42\" width=\"11\" height=\"11\"/>\
             <text class=\"small\" x=\"{}\" y=\"52\">{name}</text>",
            x + 16.0
        );
        x += 66.0;
    }
    for Column { head, x, .. } in &COLUMNS {
        let _ = writeln!(svg, "<text class=\"head\" x=\"{x}\" y=\"80\">{head}</text>");
    }
    let _ = writeln!(svg, "<text class=\"head\" x=\"{}\" y=\"80\">stored at the end</text>", STORED.0);
}

/// Draws one bar, with the numbers of its operations beside it, or `not found` if no read found a value.
fn operations(svg: &mut String, column: &Column, y: f64, of: Operations, is_missing: bool) {
    let mut x = column.x;
    for (class, number) in [("read", of.reads), ("write", of.writes), ("delete", of.deletes)] {
        let width = number * column.unit;
        if width > 0.5 {
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"1\"/>",
                y + 6.0,
                width - 1.0
            );
        }
        x += width;
    }
    let label = match of.writes + of.deletes > 0.0 {
        _ if is_missing => "not found".to_owned(),
        true => format!("{} / {} / {}", short(of.reads), short(of.writes), short(of.deletes)),
        false => short(of.reads),
    };
    let _ = writeln!(svg, "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", x + 5.0, y + 17.0);
}

/// Formats a mean with two decimals, or as an integer if the difference is below 0.005.
fn short(mean: f64) -> String {
    if (mean - mean.round()).abs() < 0.005 { format!("{mean:.0}") } else { format!("{mean:.2}") }
}

/// Draws the bar of the stored bodies, with their size beside it.
fn size(svg: &mut String, strategy: &StrategyReport, y: f64, most: u64) {
    let mut x = STORED.0;
    let stored = &strategy.stored;
    for (class, size) in [("kept", stored.current_bytes), ("expiring", stored.expiring_bytes)] {
        let width = size as f64 / most as f64 * STORED.1;
        if width > 0.5 {
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" rx=\"1\"/>",
                y + 6.0
            );
        }
        x += width;
    }
    let _ = writeln!(
        svg,
        "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x + 5.0,
        y + 17.0,
        ByteSize(body_bytes(strategy)).display().si()
    );
}

/// The bytes of the tables with bodies. The overhead is not included.
fn body_bytes(strategy: &StrategyReport) -> u64 {
    strategy.stored.current_bytes + strategy.stored.expiring_bytes
}
