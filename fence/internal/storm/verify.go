package storm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

// progressPoll is the pause between two looks at the progress.
const progressPoll = 50 * time.Millisecond

// awaitProgress waits, after the last fault, until each lock is granted, each frontier moves, and both stores accept writes, all with stamps from after it. What does not come in time is a
// violation.
func (r *round) awaitProgress(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	since, err := r.client.Timestamp(ctx)
	if err != nil {
		r.result.violation("no timestamp %v after the last fault: %v", endTimeout, err)
		return nil
	}
	missing, err := r.missing(ctx, since)
	for err == nil && missing != "" && sleep(ctx, progressPoll) {
		missing, err = r.missing(ctx, since)
	}
	if ctx.Err() != nil {
		r.result.violation("no progress %v after the last fault: %s", endTimeout, missing)
		return nil
	}
	return err
}

// missing says what has not made progress since a timestamp, "" if all has.
func (r *round) missing(ctx context.Context, since isotone.Timestamp) (string, error) {
	for _, store := range r.stores {
		for _, lock := range r.locks {
			tokens, err := store.ofLock(ctx, lock)
			if err != nil {
				return "", err
			}
			if len(tokens) == 0 || tokens[len(tokens)-1].Before(since) {
				return fmt.Sprintf("the lock %s has not been granted and written under in %s", lock, store.name()), nil
			}
		}
		for _, group := range r.groups {
			r.mu.Lock()
			tolds := r.tolds[group][store.name()]
			r.mu.Unlock()
			if len(tolds) == 0 || tolds[len(tolds)-1].frontier.Before(since) {
				return fmt.Sprintf("the frontier of %s has not moved", group), nil
			}
			before, err := store.countGroup(ctx, group, since)
			if err != nil {
				return "", err
			}
			if tolds[len(tolds)-1].writes <= before {
				return fmt.Sprintf("no write of %s below its frontier in %s", group, store.name()), nil
			}
		}
	}
	return "", nil
}

// check checks the history of the round, and counts what the workers have reported. They have ended.
func (r *round) check(ctx context.Context) error {
	for _, p := range r.workers {
		log, err := os.ReadFile(r.log(p))
		if err != nil {
			return err
		}
		r.result.count(string(log))
	}
	for _, store := range r.stores {
		for _, lock := range r.locks {
			tokens, err := store.ofLock(ctx, lock)
			if err != nil {
				return err
			}
			r.checkLock(store.name(), lock, tokens)
		}
		for _, group := range r.groups {
			stamps, err := store.ofGroup(ctx, group)
			if err != nil {
				return err
			}
			r.checkGroup(store.name(), group, stamps, r.tolds[group][store.name()])
		}
	}
	return nil
}

func (r *round) checkLock(store, lock string, tokens []isotone.Timestamp) {
	places := stale(tokens)
	r.result.Stale[store] += len(places)
	for _, i := range places {
		r.result.violation("%s, lock %s: write %d is under the token %v, after one under %v", store, lock, i+1, tokens[i], slices.MaxFunc(tokens[:i], isotone.Timestamp.Compare))
	}
}

// checkGroup counts writes: one that came late is late for each frontier from its stamp on that was told before, and counts once.
func (r *round) checkGroup(store, group string, stamps []isotone.Timestamp, tolds []told) {
	wrong := late(stamps, tolds)
	most := 0
	for _, t := range wrong {
		n := through(stamps, t.frontier)
		most = max(most, n-t.writes, t.writes-n)
		r.result.violation("%s, group %s: when the frontier %v was told, %d writes were at or below it, and at the end %d; the latest of these are %v", store, group, t.frontier, t.writes, n,
			stamps[max(0, n-5):n])
	}
	r.result.Late[store] += most
}
