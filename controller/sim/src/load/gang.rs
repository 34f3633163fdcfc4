//! Gangs: all members in one rack, with every rack in which they fit scored.

use std::time::Instant;

use selion_market::engine::Within;

use super::Bench;

impl Bench {
    /// One gang of whole or shared GPUs, chosen and taken; microseconds, and members placed.
    pub fn gang(&mut self, members: u32) -> (f64, usize) {
        let (class, gpu) = self.draw_gpu();
        let end = self.end();
        let started = Instant::now();
        self.fleet.at(self.clock as u64);
        for _ in 0..members {
            self.fleet.arrive(class);
        }
        let chosen = self.fleet.choose_gang(class, members, Within::Domain).unwrap_or_default();
        let mut placed = 0;
        for choice in chosen {
            if self.fleet.take(class, &choice, Some(end)).is_ok() {
                self.used += gpu;
                self.live.push(end, (class, gpu, choice));
                placed += 1;
            }
        }
        (started.elapsed().as_nanos() as f64 / 1000.0, placed)
    }
}
