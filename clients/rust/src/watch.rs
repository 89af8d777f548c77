//! Notices late answers, and has the members asked for now and then.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use crate::{
    router::{REFRESH, Use},
    state::Core,
};

impl Core {
    /// The task that notices late answers, and asks for the members now and then, while the client is in use.
    pub(crate) async fn watch_answers(self: Arc<Self>) {
        loop {
            self.busy.notified().await;
            while let Some(wait) = self.watch_once() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Returns how long to wait until the next look; `None` if nothing was sent since the last one.
    fn watch_once(self: &Arc<Self>) -> Option<Duration> {
        let next = [Use::Stamps, Use::Ids].into_iter().filter_map(|usage| self.watch_lane(usage)).min();
        if next.is_none() {
            self.watched.store(false, SeqCst);
            let sent = [0, self.stamps.activity().0, self.ids.activity().0];
            return (self.router.lock().sent != sent).then_some(Duration::ZERO);
        }
        self.refresh();
        next
    }

    /// Has the leader asked for the members, unless that was a short time ago.
    pub(crate) fn refresh(self: &Arc<Self>) {
        let mut r = self.router.lock();
        if r.suspected || r.refreshed.elapsed() <= REFRESH {
            return;
        }
        r.refreshed = Instant::now();
        if let Some(leader) = r.leader.clone() {
            r.node(&leader).refresh = true;
        }
        drop(r);
        self.step();
    }

    fn watch_lane(self: &Arc<Self>, usage: Use) -> Option<Duration> {
        let lane = if usage == Use::Ids { &self.ids } else { &self.stamps };
        let (sent, timeout) = lane.activity();
        let before = std::mem::replace(&mut self.router.lock().sent[usage as usize], sent);
        let mut next = (sent != before).then_some(timeout);
        for link in lane.links() {
            let Some(silent) = link.silent() else { continue };
            let left = timeout.saturating_sub(silent);
            if !left.is_zero() {
                next = Some(next.unwrap_or(timeout).min(left + Duration::from_millis(1)));
                continue;
            }
            next = next.or(Some(timeout));
            if link.hand_over() {
                continue; // the call that reads may not have run
            }
            if usage == Use::Ids {
                lane.give_up(&link);
            } else {
                self.troubles.note(&link.addr, format!("silent for {timeout:?}"));
                self.suspect(&link.addr);
            }
        }
        next
    }
}
