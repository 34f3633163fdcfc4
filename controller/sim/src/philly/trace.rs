//! The trace: one job a line, times in minutes.

use selion_api::lease::Priority;

use crate::SimError;
use crate::csv::{Column, Row, Table};

/// One job of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name in the trace.
    pub id: String,
    /// Who submitted it.
    pub user: String,
    /// Path of his group; empty: none.
    pub group: String,
    /// Gang size: whole GPUs.
    pub gpus: u32,
    /// Submission, in milliseconds since the trace began.
    pub submit_ms: u64,
    /// Who may be stopped for it, and for whom it may be.
    pub priority: Priority,
    /// Running time on all its GPUs, in milliseconds.
    pub run_ms: u64,
}

impl Job {
    /// Whose it is: equal users of different groups are different renters.
    pub(super) fn renter(&self) -> (&str, &str) {
        (&self.group, &self.user)
    }
}

const MINUTE: u64 = 60_000;

/// Reads a trace: a list with the columns `job_id`, `user`, `num_gpu`, `submit_time` and `duration`, both in minutes;
/// others may stand in it. With `classes` the column `job_type` says who goes first: `strict` jobs are firm, `best`
/// ones interruptible, others standard; without it all are standard. The columns of `group_by`, the top one first, name
/// the groups that the user is in. Jobs without a GPU are left out, the rest comes in order of submission.
///
/// # Errors
///
/// A column is missing, a cell cannot be meant, or no job wants a GPU.
pub fn jobs(table: &Table, classes: bool, group_by: &[String]) -> Result<Vec<Job>, SimError> {
    let id = table.column("job_id")?;
    let user = table.column("user")?;
    let [gpus, submit, run] = [table.column("num_gpu")?, table.column("submit_time")?, table.column("duration")?];
    // In the trace a `best` job is best effort, a `strict` one has a deadline that must hold.
    let kind = if classes { Some(table.column("job_type")?) } else { None };
    let groups = group_by.iter().map(|name| table.column(name)).collect::<Result<Vec<_>, _>>()?;
    let mut jobs = Vec::new();
    for row in table.rows() {
        let minutes = |column| row.number::<u32>(column, "a whole number of minutes", |_| true);
        let job = Job {
            id: row.text(id).to_owned(),
            user: row.text(user).to_owned(),
            group: path(row, &groups)?,
            priority: kind.map_or(Priority::Standard, |kind| class(row.text(kind))),
            gpus: row.number(gpus, "a number of GPUs", |_| true)?,
            submit_ms: u64::from(minutes(submit)?) * MINUTE,
            run_ms: u64::from(minutes(run)?) * MINUTE,
        };
        if job.gpus > 0 {
            jobs.push(job);
        }
    }
    if jobs.is_empty() {
        let what = format!("{}: no job with num_gpu above 0", table.path().display());
        return Err(SimError::Nothing { what, next: "give a trace of GPU jobs" });
    }
    // Stable: of equal times the earlier line comes first.
    jobs.sort_by_key(|job| job.submit_ms);
    Ok(jobs)
}

/// The names of the groups in a row, joined.
fn path(row: Row<'_>, groups: &[Column<'_>]) -> Result<String, SimError> {
    let names = groups.iter().map(|column| {
        let name = row.text(*column);
        let good = !name.is_empty() && !name.contains('/');
        good.then_some(name).ok_or_else(|| row.fault(*column, "the name of a group, without `/`"))
    });
    Ok(names.collect::<Result<Vec<&str>, SimError>>()?.join("/"))
}

fn class(kind: &str) -> Priority {
    match kind {
        "strict" => Priority::Firm,
        "best" => Priority::Interruptible,
        _ => Priority::Standard,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEADER: &str = "job_id,user,num_gpu,submit_time,duration\n";

    fn read(text: &str) -> Result<Vec<Job>, String> {
        let table = Table::parse(Path::new("jobs.csv"), text).and_then(|table| jobs(&table, false, &[]));
        table.map_err(|error| error.to_string())
    }

    #[test]
    fn jobs_come_in_order_of_submission_and_those_without_a_gpu_are_left_out() {
        let jobs = read(&format!("{HEADER}a,u,1,30,5\nb,u,0,10,5\nc,v,8,20,60\n")).unwrap();
        let told: Vec<(&str, u32, u64, u64)> =
            jobs.iter().map(|job| (job.id.as_str(), job.gpus, job.submit_ms, job.run_ms)).collect();
        assert_eq!(told, [("c", 8, 1_200_000, 3_600_000), ("a", 1, 1_800_000, 300_000)]);
    }

    #[test]
    fn columns_name_the_groups_of_a_user() {
        let table = Table::parse(Path::new("jobs.csv"), &format!("org,vc,{HEADER}lab,v1,a,u,1,30,5\n,v2,b,u,1,10,5\n"));
        let table = table.unwrap();
        let by = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let jobs = jobs(&table, false, &names).map_err(|error| error.to_string())?;
            Ok::<_, String>(jobs.into_iter().map(|job| job.group).collect::<Vec<_>>())
        };
        assert_eq!(by(&["vc"]), Ok(vec!["v2".to_owned(), "v1".to_owned()]));
        let error = by(&["org", "vc"]).unwrap_err();
        assert_eq!(error, "jobs.csv, row 3: `` in column `org`; it must be the name of a group, without `/`");
        let error = by(&["team"]).unwrap_err();
        assert!(error.starts_with("jobs.csv: no column `team`; it has org, vc"), "{error}");
    }

    #[test]
    fn a_missing_column_and_a_wrong_cell_are_named() {
        let error = read("job_id,user,submit_time,duration\n1,u,2,3\n").unwrap_err();
        assert_eq!(error, "jobs.csv: no column `num_gpu`; it has job_id, user, submit_time, duration");
        let error = read(&format!("{HEADER}a,u,1,30,5\nb,u,x,1,1\n")).unwrap_err();
        assert_eq!(error, "jobs.csv, row 3: `x` in column `num_gpu`; it must be a number of GPUs");
        let error = read(&format!("{HEADER}a,u,1,-3,5\n")).unwrap_err();
        assert!(error.starts_with("jobs.csv, row 2: `-3` in column `submit_time`"), "{error}");
        let error = read(&format!("{HEADER}a,u,0,3,5\n")).unwrap_err();
        assert_eq!(error, "jobs.csv: no job with num_gpu above 0; give a trace of GPU jobs");
    }
}
