//! A new block: how long until its row can be read, with the product's own pause between two questions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use selion_contracts::BlockTag;
use selion_controller::config::Config;
use selion_controller::mirror::{Finality, Mirror, chain::genesis};
use selion_controller::store::Store;

use crate::{Caller, chains, log, pool};

pub async fn run(blocks: u64) {
    let poll = Duration::from_millis(Config::default().poll_ms);
    for (name, chain) in chains().await {
        let (pool, renters) = pool(&chain, 1).await;
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (log, stop, writer) = log(&store).await;
        let (source, birth) = (Arc::new(pool.clone()), genesis(&pool).await.unwrap());
        let (mirror, db, entered, ended) = (Mirror::new(), store.writer.clone(), Arc::new(log.clone()), stop.clone());
        let following = mirror.clone();
        let task = tokio::spawn(async move {
            following.run(source, entered, db, Finality::Depth(0), birth, poll, ended).await.unwrap();
        });
        let (mut rows, mut states) = (Vec::new(), Vec::new());
        let mut caller = Caller::new(&pool, &renters[0]).await;
        // The first call is not counted: before it the mirror reads what there was.
        for round in 0..=blocks {
            // So that blocks come at every moment between two questions: what is waited for is time itself.
            tokio::time::sleep(poll.mul_f64((round as f64 * 0.618_034).fract())).await;
            let mut batches = log.subscribe();
            let began = Instant::now();
            caller.call().await;
            let head = i64::try_from(pool.rpc.header(BlockTag::Latest).await.unwrap().number).unwrap();
            let shown = "select count(*) from chain_event where number = $1";
            while sqlx::query_scalar::<_, i64>(shown).bind(head).fetch_one(&store.readers).await.unwrap() == 0 {
                tokio::task::yield_now().await; // a row tells nobody that it came
            }
            let row = began.elapsed();
            while log.position().block.is_none_or(|block| block.number < head.unsigned_abs()) {
                batches.recv().await.unwrap();
            }
            if round > 0 {
                rows.push(row);
                states.push(began.elapsed());
            }
        }
        println!("{name}: {blocks} blocks with an event each, a question every {} ms", poll.as_millis());
        tell("to the row", rows);
        tell("to State, by the log", states);
        stop.cancel();
        task.await.unwrap();
        writer.await.unwrap();
    }
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1_000.0;
    println!("  {what:24} p50 {:6.1} ms, p99 {:6.1} ms, most {:6.1} ms", at(50), at(99), at(100));
}
