package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

const (
	// timesMax is how many calls a client makes for one request to the driver.
	timesMax = 16
	// pauseMin and pauseMax bound the pause after a call without an answer.
	pauseMin, pauseMax = time.Millisecond, 50 * time.Millisecond
	// fullPause is the pause while too many calls wait to be judged.
	fullPause = time.Millisecond
	// loyal is every how many clients one never leaves its node: a node that no longer leads may answer it wrongly.
	loyal = 4
	// connectTimeout bounds how long a driver may take to get to know the nodes.
	connectTimeout = 30 * time.Second
)

// load is clients that ask all the time.
type load struct {
	*Options
	drivers []*driver.Process
	hello   driver.Hello
	nodes   int
	tally   *tally

	work   sync.WaitGroup
	cancel context.CancelFunc
}

// startDrivers starts the processes of the load.
func (l *load) startDrivers(ctx context.Context, dir string, prefix func([]string) []string) error {
	for i := range l.Processes {
		p, err := driver.Start(fmt.Sprintf("%s (process %d)", l.System, i+1), filepath.Join(dir, fmt.Sprintf("driver%d.log", i+1)), prefix(l.Driver))
		if err != nil {
			return err
		}
		l.drivers = append(l.drivers, p)
		if l.hello, err = p.Hello(ctx, l.DriverOptions); err != nil {
			return err
		}
	}
	return nil
}

// closeDrivers closes all at once: each may take its time.
func closeDrivers(list []*driver.Process) error {
	errs := make([]error, len(list))
	var work sync.WaitGroup
	for i, p := range list {
		work.Go(func() { errs[i] = p.Close() })
	}
	work.Wait()
	return errors.Join(errs...)
}

// start begins the load. Whoever fails for a reason that is not the system's ends it by done.
func (l *load) start(ctx context.Context, done func(error)) {
	ctx, l.cancel = context.WithCancel(ctx)
	for client := range l.Clients {
		l.work.Go(func() {
			if err := l.client(ctx, client); err != nil && ctx.Err() == nil {
				done(err)
			}
		})
	}
}

func (l *load) stop() {
	l.cancel()
	l.work.Wait()
	l.tally.finish()
}

// client asks until ctx is done, or the driver is at fault. A node that does not answer is left for the next one.
func (l *load) client(ctx context.Context, client int) error {
	random := rand.New(rand.NewPCG(l.Seed, uint64(client)+1))
	process, node, pause := l.drivers[client%len(l.drivers)], client%l.nodes, pauseMin
	for ctx.Err() == nil {
		if !l.tally.begin(client) {
			sleep(ctx, fullPause)
			continue
		}
		ask := driver.AskRequest{
			Node: node, Client: client, Count: 1 + random.Uint64N(uint64(l.count())), Times: min(timesMax, l.hello.TimesMax), Timeout: l.Timeout,
		}
		a, err := process.Ask(ctx, ask)
		var known *driver.Error
		if err != nil && !errors.As(err, &known) {
			l.tally.giveUp(client)
			return err
		}
		if l.tally.done(client, node, a, err) {
			pause = pauseMin
			continue
		}
		if client%loyal != 0 {
			node = (node + 1) % l.nodes
		}
		sleep(ctx, time.Duration(random.Int64N(int64(pause)))+pause/2)
		pause = min(2*pause, pauseMax)
	}
	return nil
}

// count returns how many numbers a call may ask for.
func (l *load) count() int { return int(min(uint64(l.Count), l.hello.CountMax)) }

// sleep returns after d, or when ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
