//! Puts the figures of all rounds into tables of Markdown: medians, and the least and the most.

use crate::measures::{Figure, P50, median};
use std::collections::BTreeMap;

/// The name of the figure that a bridge adds to the bare client's.
const ADDED: &str = "turn, p50, added to the bare client, µs";

/// The figures of all rounds.
pub struct Table {
    /// Who was measured; the ratios are of the first to each other.
    columns: Vec<String>,
    /// The column of the bare client.
    bare: Option<usize>,
    /// The names of the figures, in the order in which they came.
    rows: Vec<&'static str>,
    /// One value a round.
    values: BTreeMap<(&'static str, usize), Vec<f64>>,
}

impl Table {
    /// An empty one.
    pub fn new(columns: Vec<String>, bare: Option<usize>) -> Self {
        Self { columns, bare, rows: Vec::new(), values: BTreeMap::new() }
    }

    /// Adds what was measured in one round, and what follows from it.
    pub fn add(&mut self, figures: &[(usize, Figure)]) {
        let p50 =
            |(column, (name, value)): &(usize, Figure)| (*name == P50).then_some((*column, *value));
        let floor = figures.iter().filter_map(p50).find(|(column, _)| Some(*column) == self.bare);
        for figure in figures {
            let (column, (name, value)) = *figure;
            self.put(name, column, value);
            if let (Some((bare, floor)), true) = (floor, name == P50)
                && column != bare
            {
                self.put(ADDED, column, value - floor);
            }
        }
    }

    fn put(&mut self, name: &'static str, column: usize, value: f64) {
        if !self.rows.contains(&name) {
            self.rows.push(name);
        }
        self.values.entry((name, column)).or_default().push(value);
    }

    /// Prints what was measured, and then the ratios.
    pub fn print(&self) {
        self.print_table("what", 0, |name, column| self.values.get(&(name, column)).cloned());
        let first = &self.columns[0];
        self.print_table(&format!("{first} ÷"), 1, |name, column| {
            let (ours, theirs) = (self.values.get(&(name, 0))?, self.values.get(&(name, column))?);
            Some(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
        });
    }

    fn print_table(
        &self,
        corner: &str,
        from: usize,
        values: impl Fn(&'static str, usize) -> Option<Vec<f64>>,
    ) {
        let columns = &self.columns[from..];
        println!("\n| {corner} | {} |\n|---|{}", columns.join(" | "), "--:|".repeat(columns.len()));
        for name in &self.rows {
            let cells = (from..self.columns.len()).map(|column| cell(values(name, column)));
            println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }
}

fn cell(values: Option<Vec<f64>>) -> String {
    let Some(values) = values else { return "–".to_owned() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({}–{})", shown(median(values)), shown(least), shown(most))
}

/// Three digits that mean something.
fn shown(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
