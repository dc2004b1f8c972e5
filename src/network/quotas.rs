//! How many connections there may be: in all, by listener, by address, and how many new ones in a second.
//!
//! One lock for a few lines; it is taken when a connection comes or goes, never for a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::connection::{Connection, Ending};

/// New connections that may come at once after a quiet time, in seconds of the rate: Kafka measures over this long.
const RATE_WINDOW: f64 = 10.0;

/// The longest wait that a rate imposes; Kafka's bound is its quota window.
const RATE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The limits of the broker. Those of one listener come with the listener.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// `max.connections`: further ones wait to be accepted.
    pub connections_max: usize,
    /// `max.connections.per.ip`: further ones are closed at once.
    pub connections_per_ip_max: usize,
    /// `max.connections.per.ip.overrides`, with names resolved.
    pub connections_per_ip_overrides: HashMap<IpAddr, usize>,
    /// `max.connection.creation.rate` in a second; further ones wait.
    pub creation_rate_max: u32,
}

impl Default for ConnectionLimits {
    /// Kafka's defaults: no limits.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: i32::MAX as usize,
            connections_per_ip_max: i32::MAX as usize,
            connections_per_ip_overrides: HashMap::new(),
            creation_rate_max: i32::MAX as u32,
        }
    }
}

/// The limits of one listener, `listener.name.NAME.` before the same keys.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// `max.connections` of the listener, in addition to the broker's.
    pub connections_max: usize,
    /// `max.connection.creation.rate` of the listener.
    pub creation_rate_max: u32,
    /// The listener between brokers, when it is not the only one: `max.connections` of the broker does not
    /// stop it; instead the connection of another listener that is silent longest is closed.
    pub protected: bool,
}

impl Default for ListenerLimits {
    /// No limits.
    fn default() -> ListenerLimits {
        ListenerLimits {
            connections_max: i32::MAX as usize,
            creation_rate_max: i32::MAX as u32,
            protected: false,
        }
    }
}

/// The address has as many connections as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyConnections {
    pub(crate) count_max: usize,
}

/// All connections of a server.
pub(crate) struct Quotas {
    state: Mutex<State>,
    /// Told when a connection ends.
    freed: Notify,
    started: Instant,
}

struct State {
    limits: ConnectionLimits,
    rate: Rate,
    listeners: Vec<Listener>,
    addresses: HashMap<IpAddr, usize>,
    connections: HashMap<u64, (Arc<Connection>, usize)>,
    /// All, including those that wait for their request and have no socket any more.
    next_index: u64,
}

struct Listener {
    limits: ListenerLimits,
    rate: Rate,
    count: usize,
}

/// A leaking bucket: full at the start, so that a burst passes as it does in Kafka.
struct Rate {
    tokens: f64,
    filled_at: Instant,
}

impl Rate {
    fn new(rate: u32, now: Instant) -> Rate {
        Rate { tokens: f64::from(rate) * RATE_WINDOW, filled_at: now }
    }

    /// Takes one; gives how long the taker has to wait.
    fn take(&mut self, rate: u32, now: Instant) -> Duration {
        let rate = f64::from(rate);
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = f64::min(self.tokens + since * rate, rate * RATE_WINDOW) - 1.0;
        self.filled_at = now;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(-self.tokens / rate).unwrap_or(RATE_WAIT_MAX);
        Duration::min(wait, RATE_WAIT_MAX)
    }
}

impl Quotas {
    pub(crate) fn new(limits: ConnectionLimits, listeners: Vec<ListenerLimits>) -> Arc<Quotas> {
        let now = clock::now();
        let rate = Rate::new(limits.creation_rate_max, now);
        let listeners = listeners
            .into_iter()
            .map(|limits| Listener {
                limits,
                rate: Rate::new(limits.creation_rate_max, now),
                count: 0,
            })
            .collect();
        let state = State {
            limits,
            rate,
            listeners,
            addresses: HashMap::new(),
            connections: HashMap::new(),
            next_index: 0,
        };
        Arc::new(Quotas { state: Mutex::new(state), freed: Notify::new(), started: now })
    }

    /// Replaces the limits of the broker; connections that exist stay.
    pub(crate) fn set_limits(&self, limits: ConnectionLimits) {
        self.state.lock().limits = limits;
        self.freed.notify_waiters();
    }

    /// Waits until a listener may take one more connection.
    pub(crate) async fn wait_for_slot(&self, listener: usize) {
        let wait = self.state.lock().rate_wait(listener, clock::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable(); // Before the look: an end between look and wait is not missed.
            if self.state.lock().has_slot(listener) {
                return;
            }
            freed.await;
        }
    }

    /// The number that makes a connection's id unique.
    pub(crate) fn next_index(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_index += 1;
        state.next_index - 1
    }

    /// Counts a connection; it is forgotten when the guard is dropped.
    pub(crate) fn register(
        self: &Arc<Quotas>,
        listener: usize,
        connection: &Arc<Connection>,
        index: u64,
    ) -> Result<Registered, TooManyConnections> {
        let mut state = self.state.lock();
        let address = connection.peer.ip();
        let limits = &state.limits;
        let count_max = limits.connections_per_ip_overrides.get(&address).copied();
        let count_max = count_max.unwrap_or(limits.connections_per_ip_max);
        let count = state.addresses.entry(address).or_insert(0);
        if *count >= count_max {
            if *count == 0 {
                state.addresses.remove(&address);
            }
            return Err(TooManyConnections { count_max });
        }
        *count += 1;
        state.listeners[listener].count += 1;
        state.connections.insert(index, (Arc::clone(connection), listener));
        if state.connections.len() > state.limits.connections_max {
            state.close_silent_longest();
        }
        Ok(Registered { quotas: Arc::clone(self), address, index, listener })
    }

    /// Tells every connection to end.
    pub(crate) fn end_all(&self, ending: Ending) {
        for (connection, _) in self.state.lock().connections.values() {
            connection.end(ending);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().connections.len()
    }

    /// Ends when no connection is left.
    pub(crate) async fn wait_for_none(&self) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Notes that bytes came or went.
    pub(crate) fn touch(&self, connection: &Connection, now: Instant) {
        let since = now.saturating_duration_since(self.started).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        connection.last_active_ms.store(since, Ordering::Relaxed);
    }
}

impl State {
    fn rate_wait(&mut self, listener: usize, now: Instant) -> Duration {
        let listener = &mut self.listeners[listener];
        let wait = listener.rate.take(listener.limits.creation_rate_max, now);
        if listener.limits.protected {
            return wait;
        }
        Duration::max(wait, self.rate.take(self.limits.creation_rate_max, now))
    }

    /// Source: `ConnectionQuotas.connectionSlotAvailable`.
    fn has_slot(&self, listener: usize) -> bool {
        let listener = &self.listeners[listener];
        if listener.count >= listener.limits.connections_max {
            return false;
        }
        listener.limits.protected || self.connections.len() < self.limits.connections_max
    }

    /// Makes room for a connection of the protected listener.
    fn close_silent_longest(&self) {
        let unprotected = self
            .connections
            .values()
            .filter(|(_, listener)| !self.listeners[*listener].limits.protected)
            .filter(|(connection, _)| connection.ending() != Ending::Close);
        let silent_longest = unprotected
            .min_by_key(|(connection, _)| connection.last_active_ms.load(Ordering::Relaxed));
        if let Some((connection, _)) = silent_longest {
            connection.end(Ending::Close);
        }
    }
}

/// A connection that is counted.
pub(crate) struct Registered {
    quotas: Arc<Quotas>,
    address: IpAddr,
    index: u64,
    listener: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.quotas.state.lock();
        state.connections.remove(&self.index);
        state.listeners[self.listener].count -= 1;
        if let Some(count) = state.addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                state.addresses.remove(&self.address);
            }
        }
        drop(state);
        self.quotas.freed.notify_waiters();
    }
}
