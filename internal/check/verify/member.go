package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

// stepTimeout bounds one try to remove a member, or to add one.
const stepTimeout = 10 * time.Second

// changeMember injects a fault Member, until the end of the run at the latest. What the system refuses, as one without a leader does, breaks no
// promise: the fault says so.
func (r *run) changeMember(ctx context.Context, target int, lasts time.Duration, runEnd time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, runEnd)
	defer cancel()
	err := r.removeAndAdd(ctx, target, lasts)
	switch {
	case err == nil:
		return nil
	case refusedBySystem(err) || ctx.Err() != nil:
		r.load.tally.note(err.Error())
		return nil
	}
	return fmt.Errorf("%s of %s: %w", Member, r.names[target], err)
}

// removeAndAdd removes a node from the members, kills it, and has it join again without data after a time. A node that cannot be removed goes on; one
// that was removed is added as soon as that is possible, unless ctx is done before.
func (r *run) removeAndAdd(ctx context.Context, target int, lasts time.Duration) error {
	node, process := r.nodes.list[target], r.load.drivers[0]
	if err := process.Remove(ctx, target, node.command.Command, stepTimeout); err != nil {
		return fmt.Errorf("not removed: %w", err)
	}
	node.mayEnd = true // it may hear of it
	if err := node.kill(); err != nil {
		return err
	}
	sleep(ctx, lasts)
	err := r.until(ctx, func() (err error) {
		node.command.Command, err = process.Add(ctx, target, node.command.Command, stepTimeout)
		return err
	})
	if err != nil {
		return fmt.Errorf("not added: %w", err)
	}
	if err := node.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recoverMax)
	defer cancel()
	if err := r.until(ctx, func() error { return process.Ready(ctx, target, readyAsk) }); err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	return nil
}

// until repeats a step while the system refuses it, until ctx is done. Other nodes that end meanwhile are started again.
func (r *run) until(ctx context.Context, step func() error) (err error) {
	for {
		latest := step()
		if err == nil || ctx.Err() == nil { // else the reason is what the system said before
			err = latest
		}
		if ctx.Err() != nil || !refusedBySystem(err) {
			return err
		}
		if err := r.rest(ctx, time.Now().Add(readyPoll)); err != nil {
			return err
		}
	}
}

// refusedBySystem reports whether an error is that of a system. Others are the driver's, or of a wrong request.
func refusedBySystem(err error) bool {
	var told *driver.Error
	return errors.As(err, &told) && told.Kind != driver.Invalid
}
