package main

import (
	"sync"
	"testing"

	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

// BenchmarkGet has 64 callers on one connection, BenchmarkStream 64 on one stream. The backend answers at once: what is measured is
// the protocol, with grpc-go as the client in the same process.
func BenchmarkGet(b *testing.B) {
	s := startInLoop(b)
	c := isotonev1.NewTimestampsClient(dial(b, s.addr))
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := c.Get(b.Context(), &isotonev1.TimestampsGetRequest{}); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	s := startInLoop(b)
	st, err := isotonev1.NewTimestampsClient(dial(b, s.addr)).Stream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	room := make(chan struct{}, 64)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for range b.N {
			if _, err := st.Recv(); err != nil {
				b.Error(err)
			}
			<-room
		}
	})
	b.ResetTimer()
	for i := range b.N {
		room <- struct{}{}
		if err := st.Send(&isotonev1.TimestampsStreamRequest{Id: uint64(i)}); err != nil {
			b.Fatal(err)
		}
	}
	receiving.Wait()
}
