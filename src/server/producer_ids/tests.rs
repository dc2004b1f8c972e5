//! Blocks that come, late or not, and what is given out of them.

use parking_lot::Mutex;

use super::*;

/// What each try gives, in turn; nothing comes after the last.
struct Script {
    blocks: Arc<Mutex<Vec<Option<Range<i64>>>>>,
    ids: ProducerIds,
}

impl Script {
    /// `None` is a try that fails.
    fn of(blocks: &[Option<Range<i64>>]) -> Script {
        let blocks = Arc::new(Mutex::new(blocks.iter().rev().cloned().collect::<Vec<_>>()));
        let left = blocks.clone();
        let fetch: Fetch = Arc::new(move || {
            let next = left.lock().pop();
            Box::pin(async {
                match next {
                    Some(block) => block.ok_or(NoBlock::NoController),
                    None => std::future::pending().await,
                }
            })
        });
        Script { blocks, ids: ProducerIds::start(fetch, CancellationToken::new()) }
    }

    async fn next(&self) -> Result<i64, ErrorCode> {
        self.ids.next().await.map(|id| id.0)
    }

    /// Takes as many ids; gives the last.
    async fn take(&self, count: usize) -> i64 {
        let mut last = -1;
        for _ in 0..count {
            last = self.next().await.unwrap();
        }
        last
    }

    /// Blocks that nobody has asked for.
    async fn left(&self) -> usize {
        // What was begun has its turn meanwhile.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.blocks.lock().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_is_fetched_when_first_needed_and_the_next_before_it_is() {
    let script = Script::of(&[Some(0..1000), Some(5000..6000), Some(6000..7000)]);
    assert_eq!(script.left().await, 3, "nobody has asked for an id");
    assert_eq!(script.take(900).await, 899);
    assert_eq!(script.left().await, 2);
    assert_eq!(script.take(1).await, 900);
    assert_eq!(script.left().await, 1, "one ahead");
    assert_eq!(script.take(100).await, 5000);
    assert_eq!(script.left().await, 1, "and no more than one");
}

#[tokio::test(start_paused = true)]
async fn who_asks_waits_while_it_is_tried_again() {
    let script = Script::of(&[None, None, Some(0..1000)]);
    let id = tokio::time::timeout(RETRY_AFTER * 3, script.next()).await;
    assert_eq!(id, Ok(Ok(0)));
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_for_a_second_is_told_to_come_again() {
    let mut blocks = vec![None; 30];
    blocks.push(Some(0..1000));
    let script = Script::of(&blocks);
    let both = async { tokio::join!(script.next(), script.next()) };
    let both = tokio::time::timeout(WAIT_AT_MOST + RETRY_AFTER, both).await;
    let busy = Err(ErrorCode::CoordinatorLoadInProgress);
    assert_eq!(both, Ok((busy, busy)));
    // The first has an id that it did not wait for; the second, which was gone before the block came, has none.
    assert_eq!(script.next().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn ids_of_before_and_no_ids_are_not_taken() {
    let script = Script::of(&[
        Some(-1..9),
        Some(2000..2001),
        Some(1000..2000),
        Some(2000..2001),
        Some(3000..3000),
        Some(2001..2002),
    ]);
    assert_eq!(script.take(2).await, 2001);
    assert_eq!(script.left().await, 0);
    assert_eq!(script.next().await, Err(ErrorCode::CoordinatorLoadInProgress));
}
