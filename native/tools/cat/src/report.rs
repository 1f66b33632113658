//! The progress bar and the summary of a transfer.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::arguments::Common;
use crate::link::Link;

pub struct Report {
    role: &'static str,
    start: Instant,
    bytes: u64,
    bar: ProgressBar,
    is_shown: bool,
    json: bool,
}

impl Report {
    pub fn start(role: &'static str, common: &Common, total: Option<u64>) -> Self {
        let is_shown = !common.quiet && std::io::stderr().is_terminal();
        let target = if is_shown {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{bytes} of {total_bytes} {wide_bar} {binary_bytes_per_sec} {eta} left",
            None => "{spinner} {bytes} {binary_bytes_per_sec} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if is_shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self {
            role,
            start: Instant::now(),
            bytes: 0,
            bar,
            is_shown,
            json: common.json,
        }
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.is_shown {
            self.bar.set_position(self.bytes);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self, link: &Link, verified: bool) {
        let seconds = self.start.elapsed().as_secs_f64();
        let rate = self.bytes as f64 / seconds.max(1e-9);
        let (fabric, why) = link.fabric();
        self.bar.finish_and_clear();
        if self.is_shown {
            let (bytes, rate) = (HumanBytes(self.bytes), HumanBytes(rate as u64));
            eprintln!("{bytes} in {seconds:.2} s, {rate}/s over {fabric}");
        }
        if self.json {
            let summary = json!({
                "role": self.role,
                "bytes": self.bytes,
                "seconds": seconds,
                "bytes_per_second": rate,
                "percent_direct": link.percent_direct(),
                "verified": verified,
                "fabric": fabric,
                "why": why,
            });
            eprintln!("{summary}");
        }
    }
}
