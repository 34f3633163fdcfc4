//! Lists with a header and commas, read with the place of every fault. Quotes are not part of the traces' format.

use std::path::{Path, PathBuf};

use crate::SimError;

/// A list in memory: the header, and rows as long as it.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row, with what its faults are told with.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    at: usize,
}

/// A column that is there.
#[derive(Clone, Copy, Debug)]
pub struct Column<'n> {
    at: usize,
    name: &'n str,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, has no rows, or a row is not as long as the header.
    pub fn read(path: &Path) -> Result<Self, SimError> {
        let text = std::fs::read_to_string(path).map_err(|source| SimError::File { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads text; `path` is for the words of faults only.
    ///
    /// # Errors
    ///
    /// There are no rows, or a row is not as long as the header.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SimError> {
        // Spreadsheets put a mark before the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let mut lines = text.lines();
        let header = cells(lines.next().unwrap_or_default());
        let mut rows = Vec::new();
        for (at, line) in lines.enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let row = cells(line);
            if row.len() != header.len() {
                let (cells, columns) = (row.len(), header.len());
                return Err(SimError::Ragged { path: path.to_owned(), row: at + 2, cells, columns });
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(SimError::Empty { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), header, rows })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A column by name.
    ///
    /// # Errors
    ///
    /// There is none of that name.
    pub fn column<'n>(&self, name: &'n str) -> Result<Column<'n>, SimError> {
        self.find(name).ok_or_else(|| SimError::NoColumn {
            path: self.path.clone(),
            column: name.to_owned(),
            found: self.header.join(", "),
        })
    }

    /// A column by name, if it is there.
    pub fn find<'n>(&self, name: &'n str) -> Option<Column<'n>> {
        self.header.iter().position(|cell| cell == name).map(|at| Column { at, name })
    }

    /// The rows in the file's order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).map(|at| Row { table: self, at })
    }
}

impl<'a> Row<'a> {
    /// What stands in `column`.
    pub fn text(self, column: Column<'_>) -> &'a str {
        &self.table.rows[self.at][column.at]
    }

    /// Line of the file, the header being 1 (empty lines not counted).
    pub fn line(self) -> usize {
        self.at + 2
    }

    /// The number in `column`, if `good` says that it can be meant; `wanted` tells what can.
    ///
    /// # Errors
    ///
    /// It is not a number, or not a good one.
    pub fn number<T: std::str::FromStr + Copy>(
        self,
        column: Column<'_>,
        wanted: &'static str,
        good: impl Fn(T) -> bool,
    ) -> Result<T, SimError> {
        let number = self.text(column).parse().ok();
        number.filter(|number| good(*number)).ok_or_else(|| self.fault(column, wanted))
    }

    /// The fault of what stands in `column`.
    pub fn fault(self, column: Column<'_>, wanted: &'static str) -> SimError {
        SimError::Cell {
            path: self.table.path.clone(),
            row: self.line(),
            column: column.name.to_owned(),
            value: self.text(column).to_owned(),
            wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Table, String> {
        Table::parse(Path::new("list.csv"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cell_is_found_by_the_name_of_its_column() {
        let table = parse("\u{feff}a, b\n1,2\n\n3,4\n").unwrap();
        let b = table.column("b").unwrap();
        let read: Vec<u32> = table.rows().map(|row| row.number(b, "a count", |_| true).unwrap()).collect();
        assert_eq!(read, [2, 4]);
    }

    #[test]
    fn a_fault_names_file_row_column_and_value() {
        assert_eq!(parse("a,b\n").unwrap_err(), "list.csv: no rows under the header");
        assert_eq!(parse("a,b\n1,2\n3\n").unwrap_err(), "list.csv, row 3: 1 cells, the header has 2");
        let table = parse("a,b\n1,x\n").unwrap();
        assert_eq!(table.column("c").unwrap_err().to_string(), "list.csv: no column `c`; it has a, b");
        let b = table.column("b").unwrap();
        let fault = table.rows().next().unwrap().number::<u32>(b, "a count", |_| true).unwrap_err();
        assert_eq!(fault.to_string(), "list.csv, row 2: `x` in column `b`; it must be a count");
    }
}
