//! `millpond probe DIR`: what can the device do?

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use workload::probe::{self, Access};
use workload::report_text;

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::values;

/// Arguments of `probe`.
#[derive(Debug, Args)]
#[command(after_long_help = "One thread writes 4 KiB and syncs, again and again, in a file of 4 MiB that is made and
removed in DIR. Durable commits are compared with this rate.

Example:
  millpond probe . --time 3")]
pub(crate) struct ProbeArgs {
    /// A directory on the device
    dir: PathBuf,

    /// Seconds to measure, 1 to 600
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = values::whole(1..=600_u64))]
    time: u64,

    #[command(flatten)]
    cached: CachedArg,
}

/// Measures the device.
pub(crate) fn run(args: &ProbeArgs) -> Result<Answer, Failure> {
    if !args.dir.is_dir() {
        let what = if args.dir.exists() { "is no directory" } else { "does not exist" };
        let dir = args.dir.display();
        return Err(Failure::message(format!("'{dir}' {what}: name a directory on the device to measure")));
    }
    let access = if args.cached.0 { Access::Cached } else { Access::Direct };
    let device = probe::sync_pairs(&args.dir, access, Duration::from_secs(args.time))?;
    print(&format!("{}slowest pair: {:.1} ms\n", report_text::device_line(&device), device.worst_ms))?;
    Ok(Answer::Yes)
}
