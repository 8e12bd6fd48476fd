//! Results with their method and machine, for people and as JSON.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::{Value, json};

/// A figure with one value for each run.
#[derive(Debug)]
struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
    /// The words before the value of a measurement that was cut off: the value is only a limit.
    bound: Option<&'static str>,
}

/// The figures of one benchmark.
#[derive(Debug)]
pub(crate) struct Report {
    name: String,
    how: String,
    figures: Vec<Figure>,
}

impl Report {
    /// Makes a report. `how` describes the method, so that others can repeat the measurement.
    pub(crate) fn new(name: impl Into<String>, how: impl Into<String>) -> Self {
        Self { name: name.into(), how: how.into(), figures: Vec::new() }
    }

    /// Adds one run's value to a figure. Also prints it at once, since a later run may fail.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        eprintln!("{name}: {} {unit}", digits(value));
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => {
                let values = vec![value];
                self.figures.push(Figure { name: name.to_owned(), unit, values, bound: None });
            }
        }
    }

    /// Adds the limit of a measurement that was cut off, such as "more than" 300 s.
    pub(crate) fn add_bound(&mut self, name: &str, unit: &'static str, bound: &'static str, value: f64) {
        self.add(name, unit, value);
        if let Some(figure) = self.figures.iter_mut().find(|figure| figure.name == name) {
            figure.bound = Some(bound);
        }
    }

    /// Prints the report.
    pub(crate) fn print(&self, machine: &Machine) {
        println!("\n{}: {}", self.name, self.how);
        println!("on {}", machine.in_words());
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        println!("{:width$}  {:>11} {:>11} {:>11}", "", "min", "median", "max");
        for figure in &self.figures {
            let (min, median, max) = spread(&figure.values);
            println!(
                "{:width$}  {:>11} {:>11} {:>11}  {} ({} runs)",
                figure.name,
                digits(min),
                digits(median),
                digits(max),
                figure.unit,
                figure.values.len()
            );
        }
    }

    fn json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        json!({"name": self.name, "how": self.how, "figures": figures})
    }
}

impl Figure {
    fn json(&self) -> Value {
        let (min, median, max) = spread(&self.values);
        let mut figure = json!({
            "name": self.name, "unit": self.unit, "min": min, "median": median, "max": max, "runs": self.values,
        });
        if let Some(bound) = self.bound {
            figure["bound"] = bound.into();
        }
        figure
    }

    /// The median, and the minimum and the maximum of several values.
    fn in_words(&self) -> String {
        let (min, median, max) = spread(&self.values);
        let bound = self.bound.map(|bound| format!("{bound} ")).unwrap_or_default();
        match self.values.len() {
            1 => format!("{bound}{}", digits(median)),
            _ => format!("{bound}{} ({} to {})", digits(median), digits(min), digits(max)),
        }
    }
}

/// Prints reports beside each other: a row for each figure, and a column for each report.
pub(crate) fn print_beside(reports: &[Report], machine: &Machine) {
    println!();
    reports.iter().for_each(|report| println!("{}: {}", report.name, report.how));
    println!("on {}", machine.in_words());
    rows_beside(reports).iter().for_each(|row| println!("{row}"));
}

/// The heading, and a row for each figure that a report has.
fn rows_beside(reports: &[Report]) -> Vec<String> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for figure in reports.iter().flat_map(|report| &report.figures) {
        if !names.iter().any(|(name, _)| *name == figure.name) {
            names.push((&figure.name, figure.unit));
        }
    }
    let heading = reports.iter().map(|report| report.name.clone());
    let mut table = vec![[String::new()].into_iter().chain(heading).collect::<Vec<_>>()];
    for (name, unit) in names {
        let label = if unit.is_empty() { name.to_owned() } else { format!("{name} ({unit})") };
        let cells = reports.iter().map(|report| {
            let figure = report.figures.iter().find(|figure| figure.name == name);
            figure.map_or_else(|| "-".to_owned(), Figure::in_words)
        });
        table.push([label].into_iter().chain(cells).collect());
    }
    let widths: Vec<usize> = (0..=reports.len())
        .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let pad = |(cell, width): (&String, &usize)| format!("{cell:width$}");
    table
        .iter()
        .map(|row| row.iter().zip(&widths).map(pad).collect::<Vec<_>>().join("  ").trim_end().to_owned())
        .collect()
}

/// Writes reports to a file.
pub(crate) fn write_json(path: &Path, machine: &Machine, reports: &[Report]) -> Result<()> {
    let reports: Vec<Value> = reports.iter().map(Report::json).collect();
    let all = json!({"machine": machine.json(), "reports": reports});
    Ok(fs::write(path, serde_json::to_string_pretty(&all)? + "\n")?)
}

/// The minimum, the median and the maximum. The median of an even number of values is the mean of the middle
/// two.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some((first, last)) = sorted.first().zip(sorted.last()) else {
        return (f64::NAN, f64::NAN, f64::NAN);
    };
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    (*first, median, *last)
}

/// Formats values from 1 on with three digits or all integer digits, and smaller values with three decimals.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The machine of a measurement.
#[derive(Debug)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    memory_mib: u64,
    /// The load of the machine before the measurement.
    load: String,
    commit: String,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn look() -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let first_line = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
        let commit = std::process::Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(xtask::root())
            .output()
            .map_or_else(
                |_| String::new(),
                |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            );
        let memory = field("/proc/meminfo", "MemTotal");
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field("/proc/cpuinfo", "model name"),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            memory_mib: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10,
            load: first_line("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            commit,
        }
    }

    fn in_words(&self) -> String {
        format!(
            "{} cores of {}, {} MiB, Linux {}, load average {} at the start, commit {}",
            self.cores, self.processor, self.memory_mib, self.kernel, self.load, self.commit
        )
    }

    fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "memory_mib": self.memory_mib,
            "load_average": self.load,
            "commit": self.commit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_minimum_median_and_maximum() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (1.0, 2.5, 4.0));
    }

    #[test]
    fn reports_are_printed_beside_each_other_with_spreads_and_limits() {
        let mut reports = [Report::new("small", ""), Report::new("large", "")];
        reports[0].add("read, p50", "ms", 1.0);
        reports[0].add("read, p50", "ms", 3.0);
        reports[1].add("read, p50", "ms", 12.0);
        reports[1].add_bound("stats", "s", "more than", 300.0);
        let expected = [
            "                small                large",
            "read, p50 (ms)  2.00 (1.00 to 3.00)  12.0",
            "stats (s)       -                    more than 300",
        ];
        assert_eq!(rows_beside(&reports), expected);
        assert_eq!(reports[1].json()["figures"][1]["bound"], "more than");
        assert_eq!(reports[1].json()["figures"][0].get("bound"), None);
    }
}
