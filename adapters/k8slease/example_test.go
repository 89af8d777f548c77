package k8slease_test

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/k8slease"
	"github.com/isotone/isotone/client"
)

func Example() {
	ctx := context.Background() // done on SIGTERM
	c, err := client.New(ctx, "isotone.default.svc:8080")
	if err != nil {
		panic(err)
	}
	identity, _ := os.Hostname()                                                                                  // the name of the pod
	lock, err := k8slease.New(c, "default", "my-controller", resourcelock.ResourceLockConfig{Identity: identity}) // it was resourcelock.New
	if err != nil {
		panic(err)
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx, lock.Token()) },
			OnStoppedLeading: func() { os.Exit(0) },
		},
	})
}

func work(context.Context, isotone.Timestamp) {}
