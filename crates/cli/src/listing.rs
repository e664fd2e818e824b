//! Prints a list as its flags ask: a table for people, objects for programs, or names alone.

use serde::Serialize;

use crate::connection_args::ConnectedCluster;
use crate::output::{self, OutputFormat, Side, Table};

/// A list that is printed row by row or, as a table, at its end.
pub(crate) struct Listing {
    output: OutputFormat,
    /// Whether only names are printed.
    quiet: bool,
    header: bool,
    table: Table,
    /// The number of items.
    items: u64,
}

impl Listing {
    pub(crate) fn new(cluster: &ConnectedCluster, head: &[(&'static str, Side)]) -> Self {
        let ConnectedCluster { output, quiet, header, .. } = *cluster;
        Self { output, quiet, header, table: Table::new(head), items: 0 }
    }

    /// Adds an item: the name by which commands know it, its rows in the table, and its object.
    pub(crate) fn item<T: Serialize>(
        &mut self,
        name: &str,
        rows: impl FnOnce(&mut Table),
        object: impl FnOnce() -> T,
    ) {
        self.items += 1;
        match self.output {
            OutputFormat::Json => output::object(&object()),
            OutputFormat::Text if self.quiet => output::out(&format!("{}\n", output::clean(name))),
            OutputFormat::Text => rows(&mut self.table),
        }
    }

    /// How many items were added.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Prints the table.
    pub(crate) fn print(self) {
        if self.output == OutputFormat::Json || self.quiet {
            return;
        }
        output::out(&if self.header { self.table.text() } else { self.table.body() });
    }

    /// Prints the table or, if there is no item, tells people so.
    pub(crate) fn print_or(self, none: &str) {
        match (self.items, self.output) {
            (1.., _) => self.print(),
            (0, OutputFormat::Text) if !self.quiet => output::tell(&format!("{none}\n")),
            (0, _) => {}
        }
    }
}
